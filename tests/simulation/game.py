"""What a simulated game does: rounds of few players, duplicates and junk, under any conditions."""

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from stream_rater.adapters.memory import Log
from stream_rater.columns.record_table import ABOUT, SHORTEST, WAYS
from stream_rater.config.ladders import Change, Ladder, Ladders, Limits
from stream_rater.contract.corrections import EVENT_TYPE, KINDS
from stream_rater.contract.record import Headers
from stream_rater.pipeline.ladder_history import announce
from stream_rater.rating.parameters import EloMMR

LADDERS = Ladders(
    ladders={
        "a": Ladder(
            rating=EloMMR(
                weight_limit=0.2, sigma_limit=80.0, rho=1.0, history=4, skip_all_tied=True
            ),
            limits=Limits(max_entries=5),
        ),
        "d": Ladder(
            rating=EloMMR(
                weight_limit=0.3, sigma_limit=60.0, rho="inf", drift_per_day=5.0,
                newcomer_weights=(0.5,), initial_mu=1000.0, history=4,
                seats={"home": 60.0, "away": -25.0},
            )
        ),
        "f": Ladder(
            rating=EloMMR(
                weight_limit=0.2, sigma_limit=80.0, rho=0.0, history=4, dnf="not-compared"
            )
        ),
    }
)  # fmt: skip

CHANGED = Ladders(
    ladders=LADDERS.ladders | {
        "a": Ladder(
            rating=LADDERS.ladders["a"].rating,
            limits=LADDERS.ladders["a"].limits,
            changes=(
                Change(from_offset=5, rating=EloMMR(
                    weight_limit=0.4, sigma_limit=120.0, rho=0.3, initial_mu=1200.0, history=6,
                    dnf="not-compared",
                ), limits=Limits()),
                Change(from_offset=9, rating=EloMMR(
                    weight_limit=0.2, sigma_limit=90.0, rho=1.0, history=2,
                )),
            ),
        ),
        "c": Ladder(rating=LADDERS.ladders["f"].rating, from_offset=5),
    }
)  # fmt: skip
"""The changes of an upgrade, besides kernels of the next version: one of them is a new ladder."""
PARTITION_OF = {"a": 0, "c": 0, "d": 1, "f": 1}
ONE_SET = WAYS * (SHORTEST + ABOUT)
CACHE_BYTES = (0, ONE_SET, 1_000_000)  # Of an updater: none, one that evicts most, a large one.
PARTITIONS = 2
SHARDS = 3
START_S = 1_700_000_000
QUIET_EFFECTS = 20_000  # After the last fault, all must be finished in so many, else it is stuck.
STILL_EFFECTS = 40  # for this many more effects it must stay finished
ASKED = 10  # So many times QUIET_EFFECTS: after a pause, a worker may refuse a shard for long.
CHANCES = {
    "crash": 0.004, "sleep_or_wake": 0.004, "rebalance": 0.003, "roll_back": 0.002, "fail": 0.006,
    "arrive": 0.04, "time_out": 0.004, "litter": 0.0005, "wipe": 0.0007, "lose": 0.0004,
    "upgrade": 0.004, "jump": 0.003, "lose_checkpoints": 0.003, "vanish": 0.0002,
}  # fmt: skip
"""The faults, with their probabilities at a step in average conditions."""


class Weather:
    """The conditions of a seed: some faults often, some never, sometimes one all the time."""

    def __init__(self, rng: random.Random) -> None:
        factors = {name: rng.choice([0, 1, 1, 3]) for name in CHANCES}
        if rng.random() < 0.2:
            factors[rng.choice(list(CHANCES))] = 10
        self.seeded = rng.choice([0.0, 0.1, 0.3])  # the share of records that are seeds and resets
        rare = rng.choice([1.0, 0.3, 0.1])  # so rare that a correction may end between two faults
        self.rounds = rng.choice([12, 24, 36])
        self.players = rng.choice([6, 9])
        self.workers = rng.choice([1, 2, 2, 3])  # of each role
        self.submit = rng.choice([0.03, 0.06, 0.5])  # how likely a round arrives at a step
        self.faults = [(name, each * factors[name] * rare) for name, each in CHANCES.items()]
        self.doubt = rng.choice([0.0, 0.2, 0.5])  # how likely the end of a transaction is in doubt
        self.stale = rng.choice([0.0, 0.0, 0.02])  # how likely a read shows a past state
        self.deaf = rng.choice([0.0, 0.0, 0.9, 0.99])  # how likely a poll reports no rebalance yet
        self.paces = rng.choice([(1.0,), (1.0, 0.1)])  # the speeds of workers
        self.small_bites = rng.random() < 0.5
        self.stutter = rng.choice([0.0, 0.0, 0.1])  # how likely a poll returns records once more
        self.wave_players = rng.choice([4, 50])
        self.rows_per_part = rng.choice([1, 2, 5000])
        self.rows_per_call = rng.choice([1, 4, 20_000])
        self.commit_every_s = rng.choice([0.0, 0.5])
        self.corrected = rng.choice([0.0, 0.0, 0.1, 0.3])  # the share that are corrections
        self.patience = rng.choice([0, 1000, 4000])  # `Patience`: the most steps
        self.checkpoint_every = rng.choice([0, 1, 1, 6])  # as in `LogContext`


@dataclass(frozen=True)
class Submission:
    partition: int
    value: bytes
    headers: Headers = ()
    fault: str = ""  # the fault that it is (`faults`)


class Patience:
    """Sometimes lets the next records wait until a correction or seed is applied."""

    def __init__(self, rng: random.Random, most: int) -> None:
        self._rng = rng
        self._most = most
        self._left = 0

    def after(self, sent: Submission) -> None:
        if sent.fault in ("correction", "seed"):
            self._left = self._rng.choice([0, self._most])

    def waits(self, log: Log) -> bool:
        self._left = max(0, self._left - 1)
        done = log.estimators.committed
        return self._left > 0 and any(
            done.get(partition, 0) < len(records) for partition, records in enumerate(log.rounds)
        )


def submissions(rng: random.Random, conditions: Weather) -> list[Submission]:
    sent: list[Submission] = []
    pool = [f"p{n}" for n in range(conditions.players)]
    late = [f"q{n}" for n in range(conditions.rounds // 3 if conditions.seeded else 0)]
    for i in range(conditions.rounds):
        chance = rng.random()
        if chance < 0.05:
            junk = b'{"round_id": 1'
            sent.append(Submission(rng.randrange(PARTITIONS), junk, fault="junk"))
        elif chance < 0.12 and sent:
            again = rng.choice(sent)
            sent.append(replace(again, fault=again.fault or "duplicate"))
        elif chance < 0.12 + conditions.corrected and i:
            sent.append(_correction(rng, i, pool))
        elif chance > 1.0 - conditions.seeded:
            sent.append(_seed(rng, i, [*pool, *late[: 3 + i // 3]]))
        else:
            sent.append(_round(rng, i, [*pool, *late[: i // 3]]))
    return sent


def arrival_s(rng: random.Random, number: int) -> float:
    """When the broker receives a record. Its clock may be behind the round's completion."""
    return START_S + number * 3600 + rng.choice([*[7200.0] * 18, 1e6, -1e6])


def announced(log: Log, file: Ladders | None = None) -> None:
    """Announce a changed file, as a worker does when it starts, by the production code."""
    ladders = file or CHANGED
    own = {ladder: ladders.history(ladder) for ladder in ladders.ladders}

    def end_of(ladder: str) -> int:
        return len(log.rounds[PARTITION_OF[ladder]])

    def finished_of(ladder: str) -> int:
        return log.estimators.committed.get(PARTITION_OF[ladder], 0)

    announce(own, log, end_of, f"{len(log.ladder_events)}", finished_of)


def traced(number: int) -> Headers:
    """The headers of a round: every other round carries a trace, some with a state."""
    if number % 2:
        return ()
    parent = ("traceparent", f"00-{number + 1:032x}-{number + 1:016x}-01".encode())
    return [parent, ("tracestate", f"game={number}".encode())] if number % 4 else [parent]


def _standings(rng: random.Random, pool: list[str]) -> list[dict[str, object]]:
    players = rng.sample(pool, rng.choice([2, 2, 3, 4, 6]))
    found: list[dict[str, object]] = [
        {"player": player, "dnf": True}
        if rng.random() < 0.1
        else {"player": player, "rank": rng.randint(1, len(players))}
        for player in players
    ]
    for entry, seat in zip(found[: len(found) // 2], ("home", "away", "gone"), strict=False):
        entry["seat"] = seat
    return found


def _correction(rng: random.Random, number: int, pool: list[str]) -> Submission:
    """Any correction of any earlier record: often there is no such round on its ladder."""
    oldest = rng.choice([0, max(0, number - 6)])
    ladder, earlier = rng.choice(list(CHANGED.ladders)), f"r{rng.randrange(oldest, number)}"
    kind = rng.choice([*KINDS, "round-voided", "round-voided", "player-removed"])
    kinds: dict[str, dict[str, object]] = {
        "round-voided": {"round_id": earlier},
        "round-amended": {"round_id": earlier, "standings": _standings(rng, pool)},
        "player-removed": {"player": rng.choice(pool), **_span(rng, number)},
        "player-merged": dict(zip(("player", "into"), rng.choices(pool, k=2), strict=True)),
        "season-started": {"season": number, "keep": 0.5, "sigma": 150.0},
        "corrections-applied": {},
    }
    about = kinds[kind]
    if kind not in ("season-started", "corrections-applied") and rng.random() < 0.2:
        about["batched"] = True
    value = msgspec.json.encode({"ladder": ladder, **about})
    home = PARTITION_OF[ladder] if rng.random() > 0.03 else 1 - PARTITION_OF[ladder]
    return Submission(home, value, [(EVENT_TYPE, kind.encode())], fault="correction")


def _seed(rng: random.Random, number: int, pool: list[str]) -> Submission:
    """A seed of some players, or the reset of one. Most of them have played already."""
    ladder, seconds = rng.choice(list(CHANGED.ladders)), START_S + number * 3600
    about: dict[str, object] = {
        "ladder": ladder, "round_id": f"r{number}", "at": datetime.fromtimestamp(seconds, UTC),
    }  # fmt: skip
    kind = rng.choice(["players-seeded", "players-seeded", "player-reset"])
    if kind == "player-reset":
        about |= {"player": rng.choice(pool), "sigma": rng.choice([80.0, 250.0])}
        about |= {"mu": 1400.0} if rng.random() < 0.5 else {}
    else:
        some = rng.sample(pool, rng.choice([1, 2, 4]))
        about["players"] = [
            {"player": each, "mu": rng.choice([1100.0, 1700.1]), "rounds": rng.choice([1, 30])}
            for each in some
        ]
    home = PARTITION_OF[ladder] if rng.random() > 0.03 else 1 - PARTITION_OF[ladder]
    value = msgspec.json.encode(about)
    return Submission(home, value, [(EVENT_TYPE, kind.encode())], fault="seed")


def _span(rng: random.Random, number: int) -> dict[str, object]:
    since, until = sorted(START_S + rng.randrange(number + 5) * 3600 for _ in range(2))
    span: dict[str, object] = {}
    if rng.random() < 0.5:
        span["from"] = datetime.fromtimestamp(since, UTC)
    if rng.random() < 0.5:
        span["until"] = datetime.fromtimestamp(until + 1, UTC)
    return span


def _round(rng: random.Random, number: int, pool: list[str]) -> Submission:
    ladder = rng.choice(list(CHANGED.ladders))
    at = datetime.fromtimestamp(START_S + number * 3600 + rng.randint(-7200, 7200), UTC)
    about = {
        "round_id": f"r{number}", "ladder": ladder, "completed_at": at,
        "standings": _standings(rng, pool), "weight": rng.choice([1.0, 1.0, 0.5]),
    }  # fmt: skip
    value = msgspec.json.encode(about)
    home = PARTITION_OF[ladder]
    if rng.random() < 0.03:
        return Submission(1 - home, value, traced(number), fault="misplaced")
    return Submission(home, value, traced(number))
