"""`python -m tests.benchmarks.stream`: a JSON object a line on standard output, a table on standard
error.

Exit code 0: all was measured; 1: an entry was skipped, the reason is on standard error; 2: no such
workload or measure.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from local.servers import signals_as_exit
from stream_rater.config.settings import Settings
from tests.benchmarks.command import Shown, a_parser, end, parsed, show
from tests.benchmarks.document import writing
from tests.benchmarks.measure import Result
from tests.benchmarks.stream.against import NULL, Contest, Rival, rival_of
from tests.benchmarks.stream.ground import Servers, a_ground
from tests.benchmarks.stream.plan import LOBBIES, MEASURES, USUAL, Plan
from tests.benchmarks.stream.rounds import WORKLOADS

SIZE = re.compile(r"[1-9]\d*(\+[1-9]\d*)?")  # Of a crew, as in `names_of`.


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parse(arguments)
    measures, sizes = asked.measure.split(","), asked.workers.split(",")
    for what, names, known in (
        ("workload", asked.workloads, WORKLOADS),
        ("measure", measures, MEASURES),
    ):
        for name in names:
            if name not in known:
                there = " ".join(known)
                print(f"bench: no {what} {name!r}; there are: {there}", file=sys.stderr)
                return 2
    for size in sizes:
        if not SIZE.fullmatch(size):
            print(f"bench: no number of workers {size!r}; like 2, or 1+1", file=sys.stderr)
            return 2
    given = dict(each.split("=", 1) for each in asked.set)
    if asked.against:
        return end("bench-stream", asked, _compare(asked, asked.workloads or [LOBBIES], given))
    plan = Plan(frozenset(measures), sizes, asked.quick, asked.turns, asked.release)
    servers = Servers(asked.brokers, asked.redis_masters)
    shown = _run(plan, asked.workloads or list(WORKLOADS), enough(sizes) | given, servers)
    return end("bench-stream", asked, shown)


def enough(sizes: Sequence[str]) -> dict[str, str]:
    """Twice as many partitions and shards as the largest crew's processes, where ours are fewer."""
    most = max(int(count) for size in sizes for count in size.split("+"))
    usual = Settings()
    names = ("partitions", "shards")
    return {name: str(2 * most) for name in names if getattr(usual, name) < most}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = a_parser("tests.benchmarks.stream", __doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    usual, more = ",".join(USUAL), ", ".join(each for each in MEASURES if each not in USUAL)
    parser.add_argument(
        "--measure", default=usual, metavar="M,M", help=f"default: %(default)s; more: {more}"
    )
    parser.add_argument(
        "--workers", default="1,1+1,2,3", metavar="N,N",
        help="how many processes, 1+1: a role each (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--brokers", type=_count, default=1, metavar="N",
        help="brokers of Kafka; with three or more, each partition has three copies",
    )  # fmt: skip
    parser.add_argument(
        "--redis-masters", type=_count, default=1, metavar="N",
        help="masters of a Redis Cluster; 1: a Redis alone",
    )  # fmt: skip
    parser.add_argument("--turns", type=int, metavar="N", help="take turns so many times")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the service"
    )
    parser.add_argument(
        "--against", action="append", metavar="WHAT",
        help="only compare latency, in turns, with a release in another folder, with other"
        f" settings: shards=4,partitions=2, or with {NULL}, a pipeline that does nothing (of"
        f" {LOBBIES}, if no workload is named)",
    )  # fmt: skip
    parser.add_argument(
        "--release", type=Path, metavar="FOLDER", help="with --measure steps: of that release"
    )
    asked = parsed(parser, arguments, "--set")
    if asked.against and (asked.brokers, asked.redis_masters) != (1, 1):
        parser.error("--against: with one broker and one Redis each")
    others = [each for each in asked.against or () if each != NULL]
    writing.check(parser, write=asked.write, unlike={"--against": others})
    return asked


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 99")
    return int(text)


def _compare(asked: argparse.Namespace, workloads: Sequence[str], given: dict[str, str]) -> Shown:
    workers = asked.workers.split(",")[0]
    try:
        rivals = [Rival("this"), *map(rival_of, asked.against)]
    except ValueError as wrong:
        print(f"bench: {wrong}", file=sys.stderr)
        return 2, []
    contest = Contest(rivals, workers, asked.quick, asked.turns)
    with _a_folder() as folder:
        return show((name, contest.results(folder, given, WORKLOADS[name])) for name in workloads)


def _run(plan: Plan, workloads: Sequence[str], given: dict[str, str], servers: Servers) -> Shown:
    with _a_folder() as folder, a_ground(folder, given, servers) as ground:
        found = ((name, plan.results(ground, WORKLOADS[name])) for name in workloads)
        return show((name, labelled(each, servers.label)) for name, each in found)


def labelled(results: Iterator[Result], label: str) -> Iterator[Result]:
    """The results, of which each name says on which servers, if these are not one of each kind."""
    for each in results:
        yield msgspec.structs.replace(each, name=f"on/{label}/{each.name}") if label else each


@contextmanager
def _a_folder() -> Iterator[Path]:
    with (
        signals_as_exit(),
        tempfile.TemporaryDirectory(prefix="stream-rater-", ignore_cleanup_errors=True) as folder,
    ):
        yield Path(folder)


if __name__ == "__main__":
    sys.exit(main())
