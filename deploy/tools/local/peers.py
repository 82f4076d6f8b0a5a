"""What `make bench` compares with: one more step of the set-up, done once like the others."""

import sys

from local import python_env, steps


def main() -> int:
    """Install the peers; 1 with one line on standard error when they cannot be."""
    return steps.run(lambda: python_env.ensure_peers(steps.say))


if __name__ == "__main__":
    sys.exit(main())
