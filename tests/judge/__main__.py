"""Judge a recorded run: `python -m tests.judge FILE...`.

The files are those of one run. The first one with records is the reader whose events are judged;
the others are compared with it. The exit code is 0 if the run is clean, 1 if a promise was broken
or nothing was checked, and 2 if a file is no recording.
"""

import argparse
import sys
from pathlib import Path

from tests.judge.judge import judged
from tests.judge.observations import BadObservations


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.judge", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--most", type=int, default=50, help="lines of violations (%(default)s)")
    given = parser.parse_args()
    try:
        found = judged(*given.files)
    except (BadObservations, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for line in found.report(given.most):
        print(line)
    return 0 if found.clean else 1


if __name__ == "__main__":
    sys.exit(main())
