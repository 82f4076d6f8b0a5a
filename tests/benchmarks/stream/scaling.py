"""What so many workers do, on paper, as Markdown:

    make bench-stream ARGS="lobby5 --measure rate --workers 1" |
        .venv/bin/python -m tests.benchmarks.stream.scaling

From what an update takes of a worker's, Redis' and the broker's processor, measured with one
worker, to the rate of n workers on machines of their own. A closed network of queues: each worker
has a batch under way, which is at the worker itself, waits for a Redis' one thread, or for a core
of the brokers. Mean value analysis is exact for it (M. Reiser, S. S. Lavenberg, J. ACM 27, 1980)
where service times are exponential; several cores are one that is as much faster, and a delay (A.
Seidmann). Networks are left out, and that a worker does other work while it waits.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tests.benchmarks.measure import Result

WORKERS = (1, 2, 4, 8, 16, 32)
REDIS = (1, 4, 16)
"""How many servers share Redis' work: a cluster, whose shards are spread evenly."""
BROKER_CORES = 8
"""Of all brokers together."""
BUSY = 0.9
"""What all workers share and is at work this part of the time is the bottleneck."""
MOST_WORKERS = 1000


@dataclass(frozen=True)
class Costs:
    """Processor time of an update, in µs."""

    workers: float
    redis: float
    broker: float


@dataclass(frozen=True)
class Point:
    """How it is with so many workers."""

    workers: int
    rate: float
    """Updates a second."""
    busy: Mapping[str, float]
    """Part of its time that each is at work, by name: of what all workers share."""

    @property
    def busiest(self) -> str:
        """Which of them."""
        return max(self.busy, key=lambda who: self.busy[who])


def curve(costs: Costs, redis: int, cores: int = BROKER_CORES) -> Iterator[Point]:
    """One worker, two, and so on, with so many servers of Redis."""
    queues = {f"Redis {i}": costs.redis / redis for i in range(redis)}
    queues["brokers"] = costs.broker / cores
    delay_us = costs.workers + costs.broker * (cores - 1) / cores
    waiting = dict.fromkeys(queues, 0.0)
    for workers in range(1, MOST_WORKERS + 1):
        stays = {who: used * (1.0 + waiting[who]) for who, used in queues.items()}
        rate = workers / (delay_us + sum(stays.values()))
        waiting = {who: rate * stay for who, stay in stays.items()}
        busy = {"Redis": rate * queues["Redis 0"], "brokers": rate * queues["brokers"]}
        yield Point(workers, rate * 1e6, busy)


def table(name: str, costs: Costs) -> Iterator[str]:
    """Lines of Markdown."""
    used = f"{costs.workers:.1f} µs of a worker, {costs.redis:.1f} of Redis, {costs.broker:.1f}"
    yield f"`{name}`: an update takes {used} of the brokers, which have {BROKER_CORES} cores."
    yield ""
    yield "| workers |" + "".join(f" {n} Redis: updates/s | busiest |" for n in REDIS)
    yield "|---|" + "---|---|" * len(REDIS)
    points = [list(curve(costs, n)) for n in REDIS]
    for workers in WORKERS:
        yield _line(str(workers), (each[workers - 1] for each in points))
    yield _line("first bottleneck", map(first_bottleneck, points), show_workers=True)
    yield ""


def first_bottleneck(points: Sequence[Point]) -> Point:
    """From which number of workers on more of them add little."""
    return next((each for each in points if each.busy[each.busiest] >= BUSY), points[-1])


def _line(name: str, points: Iterable[Point], *, show_workers: bool = False) -> str:
    cells = [name]
    for each in points:
        with_so_many = f" with {each.workers}" if show_workers else ""
        cells.append(f"{round(each.rate, -3):,.0f}{with_so_many}")
        cells.append(f"{each.busiest}, {100 * each.busy[each.busiest]:.0f} %")
    return f"| {' | '.join(cells)} |"


def costs_of(lines: Iterable[bytes]) -> dict[str, Costs]:
    """By workload, of what the benchmark printed for one worker."""
    found = {}
    for line in lines:
        result = msgspec.json.decode(line, type=Result)
        kind, *rest = result.name.split("/")
        if kind == "stream" and rest[1:] == ["1"]:
            found[rest[0]] = Costs(
                *(result.ratio[f"{who}_us"] for who in ("workers", "redis", "broker"))
            )
    return found


def main() -> int:
    """Read figures from standard input."""
    found = costs_of(sys.stdin.buffer)
    if not found:
        print("scaling: no figures of one worker on standard input", file=sys.stderr)
        return 2
    for name, costs in found.items():
        print(*table(name, costs), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
