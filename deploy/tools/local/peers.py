"""Installs the packages that `make bench` compares with, as a step of the set-up, once."""

import sys

from local import python_env, steps


def main() -> int:
    """Install the peers. Returns 1 after one line on standard error if that fails."""
    return steps.run(lambda: python_env.ensure_peers(steps.say))


if __name__ == "__main__":
    sys.exit(main())
