"""The tables of `make chaos` and `make soak`."""

from collections.abc import Iterator
from typing import Any

from tests.benchmarks.document.rows import Figures, Row
from tests.benchmarks.document.tables import TAKEN, Column, Table, figure, number, shown
from tests.simulation.faults import KINDS

CODEFORCES_STORM = (
    "Three workers, one of them without an instance id, are killed or frozen at random moments"
)
BREAKS = {
    "storm-codeforces": f"{CODEFORCES_STORM} while ten years of Codeforces are rated.",
    "storm-lobbies": f"{CODEFORCES_STORM} while rounds of eight are rated.",
    "upgrade": "Three workers are replaced one by one. The new ones have other rating kernels and"
    " other ladder parameters.",
    "corrections": "Three workers, one of them without an instance id, are killed at random moments"
    " while corrections of three ladders are worked in, mostly the one who works on them.",
    "corrections-failover": "A master of a Redis Cluster of six is killed while corrections are"
    " worked in, and its replica takes over.",
    "corrections-hard-lone-broker": "The only broker is killed while corrections are worked in, it"
    " is started again, and hanging transactions are aborted. Played on request only.",
    "corrections-upgrade": "Three workers are replaced one by one while corrections are worked in."
    " The new ones have other rating kernels.",
    "clean-broker-1": "Each of three brokers is stopped and started again. One worker.",
    "clean-broker-3": "Each of three brokers is stopped and started again. Three workers.",
    "hard-broker-1": "Each of three brokers is killed and started again. One worker.",
    "hard-broker-3": "Each of three brokers is killed and started again. Three workers.",
    "clean-worker-1": "The only worker is stopped by SIGTERM and started again.",
    "clean-worker-3": "One of three workers is stopped by SIGTERM and started again.",
    "hard-worker-1": "The only worker is killed and started again.",
    "hard-worker-3": "One of three workers is killed and started again.",
    "hard-worker-unnamed": "One of two workers without an instance id is killed, and another one"
    " is started.",
    "lone-broker": "The only broker is stopped and started again. Two workers.",
    "hard-lone-broker": "The only broker is killed and started again, and hanging transactions are"
    " aborted. Played on request only: the service promises nothing here.",
    "one-of-three-brokers": "One of three brokers is killed, rounds are reported without it, and"
    " it comes back. Two workers.",
    "connections-cut": "Connections to Kafka, to Redis, or to both are closed, and none is made"
    " for some seconds.",
    "connections-delayed": "All data between the workers and Kafka, Redis, or both are delayed.",
    "connections-throttled": "Connections to Kafka, to Redis, or to both are slowed down to some"
    " KB a second.",
    "connections-silent": "Connections to Kafka, to Redis, or to both stay open, and no data come"
    " through.",
    "connections-torn": "Connections to Kafka, to Redis, or to both are closed within a message.",
    "redis-killed": "Redis is killed and started again from its append-only file.",
    "redis-failover": "A master of a Redis Cluster of six is killed, and its replica takes over.",
    "redis-resharded": "Slots of a Redis Cluster of three move to other masters, key by key, while"
    " workers use them.",
    "redis-restored": "Redis is emptied under load, then an older snapshot is put back.",
    "redis-rebuilt": "Redis is emptied under load, then `stream-rater rebuild` fills it.",
    "rolling": "Three workers are restarted one after the other under a steady load.",
}
"""What each fault of `make chaos` does, in the order of the table."""


def _fault(row: Row) -> str:
    return row.name.removeprefix("chaos/")


def _ended(row: Row) -> str:
    """How many workers, for whatever reason."""
    found = figure(row, "ended_themselves")
    return number(sum(found.values()) if isinstance(found, dict) else found)


FAULTS = Table(
    "chaos", "make chaos WRITE=1", r"chaos/.+",
    [
        Column("fault", "its name, as in `make chaos ARGS=NAME`.", lambda row: f"`{_fault(row)}`"),
        Column("what happens", "what is broken.", lambda row: BREAKS.get(_fault(row), "")),
        Column("times", "how often it was done.", shown("injected")),
        Column("updates", "how many ratings changed meanwhile.", shown("updates")),
        Column("lost", "events that never came.", shown("lost")),
        Column("doubled", "events that came twice.", shown("doubled")),
        Column(
            "wrong", "events out of order, with another id, or with other numbers.", shown("wrong")
        ),
        Column(
            "rebalances",
            "how often the partitions or shards of a worker that went on were changed.",
            shown("rebalances"),
        ),
        Column(
            "ended",
            "workers that ended by themselves and were started again. Two reasons are allowed: a"
            " restarted broker does not know the member, or a call to the client library does not"
            " return.",
            _ended,
        ),
        Column(
            "recovery, s",
            "the longest time from the end of a fault until all rounds sent before were rated and"
            " their events could be read.",
            shown("recovery_s"),
        ),
        TAKEN,
    ],
    order=list(BREAKS),
)  # fmt: skip

ROLLING = Table(
    "rolling", "make chaos WRITE=1 ARGS=rolling", r"chaos/rolling",
    [
        *(
            Column(f"{when} p{share}, ms", f"{share} % of the updates {what}", shown(path))
            for when, what, key in (
                ("before", "took no longer before the first restart.", "_before_ms"),
                ("during", "took no longer while workers were restarted.", "_ms"),
            )
            for share, path in ((50, f"p50{key}"), (99, f"p99{key}"))
        ),
        Column("longest, ms", "the longest that an update took meanwhile.", shown("longest_ms")),
        Column(
            "exit, s", "from SIGTERM to the end of the process, the longest.", shown("exit_s")
        ),
        Column(
            "ready, s", "from SIGTERM until its successor was ready, the longest.", shown("down_s")
        ),
        TAKEN,
    ],
)  # fmt: skip

SIMULATED = {
    "seeds": "seeds, each a simulation of its own",
    "violations": "seeds with a wrong rating, an event lost, doubled or out of order, or a round"
    " that is never rated",
    "mutants": "mutants: the protocol with one rule left out",
    "caught": "mutants caught by a scenario written for them",
    "caught_by_seeds": "mutants caught by random seeds, too",
}
"""What a line of the simulation's table counts, by its field in the JSON object."""


def counted(figures: Figures) -> Iterator[tuple[str, Any]]:
    """The lines of the simulation's table: what is counted, how many."""
    yield from ((what, figures[name]) for name, what in SIMULATED.items() if name in figures)
    faults = figures["faults"]
    yield from ((what, faults[kind]) for kind, what in KINDS.items() if kind in faults)


SIMULATION = Table(
    "simulation", "make soak WRITE=1", r"soak/simulation",
    [
        Column("counted", "what was counted.", lambda row: row.name),
        Column("times", "how many there were.", shown("times")),
        TAKEN,
    ],
    spread=lambda row: (
        Row(what, row.origin, {"times": times}) for what, times in counted(row.figures)
    ),
)  # fmt: skip

DECODER = Table(
    "decoder", "make soak WRITE=1", r"soak/decoder",
    [
        Column("messages", "how many broken or odd messages it was given.", shown("inputs")),
        Column("valid", "how many of them were valid rounds all the same.", shown("valid")),
        Column("codes", "how many error codes were among the answers.", shown("codes")),
        Column("slowest, ms", "processor time of the slowest message.", shown("slowest_ms")),
        Column(
            "grown, MiB", "how much a process grew after its first messages.", shown("grown_mib")
        ),
        Column("wrong", "how many raised an exception or took too long.", shown("wrong")),
        TAKEN,
    ],
)  # fmt: skip

TABLES = (FAULTS, ROLLING, SIMULATION, DECODER)
