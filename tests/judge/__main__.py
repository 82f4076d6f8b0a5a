"""Judge a recorded run: `python -m tests.judge FILE...`; the first file with records is judged, the
others are compared with it. Exit code 1: a promise was broken or nothing checked; 2: no
recording."""

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
