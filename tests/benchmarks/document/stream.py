"""The tables of `make bench-stream`."""

import re
from collections.abc import Iterator

from tests.benchmarks.document.rows import Row
from tests.benchmarks.document.tables import (
    TAKEN,
    Column,
    Table,
    figure,
    noted,
    number,
    shown,
    word,
)
from tests.benchmarks.stream.rounds import WORKLOADS
from tests.benchmarks.stream.scaling import REDIS, WORKERS, Costs, Point, curve, first_bottleneck

STREAM = "make bench-stream WRITE=1"
WORKLOAD = Column("workload", "what is played: see the list of workloads.", word(1))
PROCESSES = Column(
    "processes",
    "how many worker processes; `1+1` is one estimator and one updater.",
    word(2),
)

COSTS = [
    Column(
        f"{who}, µs",
        f"processor time of {what} for one update.",
        shown(f"ratio.{key}_us"),
    )
    for who, what, key in (
        ("worker", "all workers together", "workers"),
        ("Redis", "Redis", "redis"),
        ("broker", "the Kafka broker", "broker"),
    )
]

RATE = Table(
    "rate", STREAM, r"stream/(?!million/)[^/]+/[^/]+",
    [
        WORKLOAD,
        PROCESSES,
        Column("updates/s", "ratings changed a second while a backlog is rated.", shown("value")),
        *COSTS,
        Column(
            "of null",
            "our rate, divided by that of the null pipeline with the same batches.",
            shown("ratio.null"),
        ),
        Column(
            "of null by processor",
            "the null pipeline's processor time for an update, divided by ours. Other work on the"
            " machine changes it less than the column before.",
            shown("ratio.null_by_processor"),
        ),
        Column(
            "of null, large",
            "our rate, divided by that of the null pipeline with large batches.",
            shown("ratio.null_large"),
        ),
        Column(
            "times exactly once",
            "how many times faster than Quix Streams with openskill.py, exactly once.",
            shown("ratio.quix_exactly_once"),
        ),
        Column(
            "times at least once",
            "the same, at least once.",
            shown("ratio.quix_at_least_once"),
        ),
        TAKEN,
    ],
    order=list(WORKLOADS),
)  # fmt: skip

PIPELINES = Table(
    "pipelines", STREAM, r"stream/[^/]+/[^/]+/.+",
    [
        WORKLOAD,
        PROCESSES,
        Column("pipeline", "what ran in the service's place.", word(3)),
        Column("updates/s", "players a second that it got through.", shown("value")),
        *COSTS,
        TAKEN,
    ],
    order=list(WORKLOADS),
)  # fmt: skip


def _load(row: Row) -> str:
    load = row.name.split("/")[2]
    return number(int(load[2:])) + "/s" if load.startswith("at") else f"{load} %"


DUE = Column("updates/s", "how many updates a second were due.", noted(r"at (\d+) updates/s"))
PERCENTILES = [
    Column("p50, ms", "half of the updates took no longer.", shown("ratio.p50")),
    Column("p99, ms", "99 of 100 updates took no longer.", shown("ratio.p99")),
    Column("p99.9, ms", "999 of 1,000 updates took no longer.", shown("ratio.p999")),
]
BEHIND = Column(
    "behind, ms",
    "how much of the load, in milliseconds of it, was not rated when the last round's time was"
    " over. Where it is seconds, the load is more than the worker can do.",
    shown("ratio.behind"),
)

LATENCY = Table(
    "latency", STREAM, r"latency/[^/]+/(at)?\d+",
    [
        WORKLOAD,
        Column("load", "in per cent of the rate just measured, or updates a second.", _load),
        DUE,
        *PERCENTILES,
        BEHIND,
        TAKEN,
    ],
    order=list(WORKLOADS),
)  # fmt: skip

STORIES = {
    "kill": "one of two workers is killed, and started again under its name",
    "roll": "both workers are stopped and replaced, one after the other",
}

BESIDE_NULL = Table(
    "latency-null", f'{STREAM} ARGS="lobby5 team5v5 --against null"', r"beside-null/[^/]+/\d+",
    [
        WORKLOAD,
        Column("updates/s", "rating changes a second, fed to both.",
               lambda row: number(int(row.name.split("/")[2]))),
        Column("p50, ms", "from when a round was due to its event.", shown("ratio.p50_ms")),
        Column("p99, ms", "the same.", shown("ratio.p99_ms")),
        Column("null p50, ms", "of the null pipeline.", shown("ratio.null_p50_ms")),
        Column("null p99, ms", "of the null pipeline.", shown("ratio.null_p99_ms")),
        Column("p50, times", "how many times as long ours took: median of the turns' ratios.",
               shown("ratio.p50_times")),
        Column("p99, times", "the same of p99.", shown("ratio.p99_times")),
        TAKEN,
    ],
    order=list(WORKLOADS),
)  # fmt: skip

RECOVERY = Table(
    "recovery", STREAM, r"recovery/[^/]+/[^/]+",
    [
        WORKLOAD,
        Column(
            "what happens",
            "what is done to the workers under this load.",
            lambda row: STORIES.get(row.name.split("/")[2], row.name),
        ),
        DUE,
        Column("longest, ms", "the longest that any update took.", shown("value")),
        *PERCENTILES[:2],
        TAKEN,
    ],
)  # fmt: skip

CORRECTED = {
    "a-checkpoint": "a checkpoint is made of all rounds but the last hundredth",
    "a-late-round": "a round of the last hundredth is voided",
    "the-first-round": "the first round is voided",
}

CORRECTIONS = Table(
    "corrections", f'{STREAM} ARGS="lobby5 --measure corrections"', r"correction/[^/]+/[^/]+",
    [
        Column(
            "what happens",
            "what is done to a ladder that has so many updates.",
            lambda row: CORRECTED.get(row.name.split("/")[2], row.name),
        ),
        Column("updates", "of the ladder before.",
               lambda row: number(int(str(row.figures["note"]).split()[4]))),
        Column("seconds", "until it was worked in, from when it was sent; how long the command"
               " took.", shown("value")),
        Column("p50, ms", "from when a round of other ladders was due to its event, meanwhile.",
               shown("ratio.p50")),
        Column("p99, ms", "the same.", shown("ratio.p99")),
        Column("longest, ms", "the same.", shown("ratio.p100")),
        TAKEN,
    ],
    order=list(CORRECTED),
)  # fmt: skip

BANS = Table(
    "bans", f'{STREAM} ARGS="lobby5 --measure bans"', r"bans/[^/]+/[^/]+",
    [
        Column(
            "players removed",
            "in one `corrections-applied`; one player alone without it.",
            lambda row: number(int(row.name.split("/")[2])),
        ),
        Column("updates", "of the ladder before.",
               lambda row: number(int(str(row.figures["note"]).split()[4]))),
        Column("seconds", "from when the first removal was sent until all were worked in.",
               shown("value")),
        Column("MiB before", "that the worker held.", shown("ratio.MiB_before")),
        Column("MiB at most", "that it held meanwhile.", shown("ratio.MiB_most")),
        Column("p50, ms", "from when a round of other ladders was due to its event, meanwhile.",
               shown("ratio.p50")),
        Column("p99, ms", "the same.", shown("ratio.p99")),
        Column("longest, ms", "the same.", shown("ratio.p100")),
        TAKEN,
    ],
)  # fmt: skip

MILLION = Table(
    "million", STREAM, r"stream/million/[^/]+",
    [
        PROCESSES,
        Column("seconds", "from sending the round to its last event.", shown("value")),
        *(
            Column(f"{when} p{share}, ms", f"{share} % of {what} took no longer.", shown(path))
            for when, what, key in (
                ("beside", "the lobbies' updates while the round was on its way", "beside"),
                ("before", "their updates before it was sent", "quiet"),
            )
            for share, path in ((50, f"ratio.{key}_p50_ms"), (99, f"ratio.{key}_p99_ms"))
        ),
        Column("message, MB", "size of the round in Kafka.", shown("ratio.message_mb")),
        Column("worker, MB", "the most memory that a worker had.", shown("ratio.worker_mb")),
        TAKEN,
    ],
)  # fmt: skip

REBUILD = Table(
    "rebuild", STREAM, r"rebuild(/[^/]+)?",
    [
        Column(
            "workload",
            "what the log holds: see the list of workloads.",
            lambda row: f"`{row.name.partition('/')[2] or 'lobby5'}`",
        ),
        Column("updates/s", "updates replayed a second, from start to end.", shown("value")),
        Column(
            "updates/s a core",
            "updates a second of the command's own processor time, without its start.",
            shown("ratio.a_core"),
        ),
        Column("start, s", "processor time before it begins.", shown("ratio.start_s")),
        TAKEN,
    ],
)  # fmt: skip

MEMORY = Table(
    "memory", STREAM, r"memory/player",
    [
        Column("bytes a player", "memory of Redis for each player.", shown("value")),
        TAKEN,
    ],
)  # fmt: skip


ALL_ELSE = "everything else, the Kafka client's threads among it"


def _steps(row: Row) -> Iterator[Row]:
    """A line for each step, and one for what no step has."""
    spent = row.figures["ratio"]
    for step, used in spent.items():
        yield Row(row.name, row.origin, {"step": step, "us": used})
    rest = float(figure(row, "value") or 0.0) - sum(spent.values())
    yield Row(row.name, row.origin, {"step": ALL_ELSE, "us": rest})


STEPS = Table(
    "steps", f'{STREAM} ARGS="lobby5 --measure steps"', r"steps/.+",
    [
        WORKLOAD,
        Column("release", "this one, or the one before rounds were folded.",
               lambda row: "before" if row.name.endswith("/before") else "this"),
        Column("step", "what one worker does.", lambda row: str(row.figures["step"])),
        Column("µs", "processor time of the step for one update.", shown("us")),
        TAKEN,
    ],
    order=list(WORKLOADS),
    spread=_steps,
)  # fmt: skip


def _held(row: Row) -> Iterator[Row]:
    for key, value in row.figures["ratio"].items():
        if match := re.fullmatch(r"MiB_at_(\d+)", key):
            yield Row(row.name, row.origin, {"updates": int(match[1]), "mib": value})


GROWTH = Table(
    "worker-memory", f'{STREAM} ARGS="lobby5 --measure memory"', r"memory/worker",
    [
        Column("updates", "how many updates one worker has made.", shown("updates")),
        Column("MiB", "memory of that worker.", shown("mib")),
        TAKEN,
    ],
    spread=_held,
)  # fmt: skip

SIZES = Table(
    "sizes", f'{STREAM} ARGS="lobby5 --measure sizes"',
    r"sizes/(players|shards)/\d+",
    [
        Column("varied", "what differs: players in Redis, or shards.", word(1)),
        Column("number", "how many.", lambda row: number(int(row.name.split("/")[2]))),
        Column("all, µs", "processor time of all processes for one update.", shown("value")),
        *COSTS,
        TAKEN,
    ],
)  # fmt: skip


def _scaled(row: Row) -> Iterator[Row]:
    """What more workers would do by the model, from what one was measured to need."""
    used = [figure(row, f"ratio.{who}_us") for who in ("workers", "redis", "broker")]
    if None in used:
        return
    points = {servers: list(curve(Costs(*used), servers)) for servers in REDIS}
    for workers in WORKERS:
        told = {str(n): _point(each[workers - 1]) for n, each in points.items()}
        yield Row(number(workers), row.origin, told)
    full = {n: first_bottleneck(each) for n, each in points.items()}
    told = {str(n): _point(each, f" with {each.workers}") for n, each in full.items()}
    yield Row("first bottleneck", row.origin, told)


def _point(point: Point, note: str = "") -> dict[str, str]:
    busy = f"{point.busiest}, {100.0 * point.busy[point.busiest]:.0f} %"
    return {"rate": f"{round(point.rate, -3):,.0f}{note}", "busiest": busy}


CAPACITY = Table(
    "capacity", STREAM, r"stream/lobby5/1",
    [
        Column(
            "workers",
            "how many workers, on machines of their own. The last line is the first number of"
            " workers that keeps one of the shared servers busy nearly all of the time.",
            lambda row: row.name,
        ),
        *(
            column
            for n in REDIS
            for column in (
                Column(
                    f"{n} Redis: updates/s",
                    f"computed rate with {n} Redis server{'s' * (n > 1)}.",
                    shown(f"{n}.rate"),
                ),
                Column(
                    f"{n} Redis: busiest",
                    "which of the shared servers is the busiest, and for how much of the time.",
                    shown(f"{n}.busiest"),
                ),
            )
        ),
        TAKEN,
    ],
    spread=_scaled,
)  # fmt: skip

TABLES = (
    RATE, STEPS, PIPELINES, LATENCY, BESIDE_NULL, RECOVERY, CORRECTIONS, BANS, MILLION, REBUILD,
    MEMORY, GROWTH, SIZES, CAPACITY,
)  # fmt: skip
