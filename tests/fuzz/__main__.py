"""Fuzz at length: `python -m tests.fuzz --inputs N --minutes M`. Exit 1 if anything was wrong."""

import argparse
import json
import random
import sys

from rich.console import Console

from tests.fuzz.run import INPUTS, fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, help="the first seed; by default a random one")
    arguments = parser.parse_args()
    first = random.SystemRandom().randrange(2**40) if arguments.first is None else arguments.first
    summary = fuzz(first, arguments.inputs, 60.0 * arguments.minutes, Console(stderr=True))
    print(json.dumps(summary))
    return 1 if summary["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
