"""`replay/seeds`: how fast a replay gives millions of players the ratings that they bring.

`rate` and `verify` replay one record after the other, and `rebuild` many together. Both begin with
the bytes of the records, of as many players as a seed may have.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from stream_rater.config.ladders import any_ladder
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import MOST_PLAYERS, SEEDED
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.rebuild_store import Rebuild
from stream_rater.replay.sequential import Replay
from tests.benchmarks.measure import Effort, Result, result
from tests.benchmarks.offline import CONFIG

PLAYERS = 10_000_000
QUICK = 100
"""The divisor of the number of players for a quick run."""
TOGETHER = 20
"""The number of records that a rebuild takes at once."""
WINDOW = 100_000
LADDERS = any_ladder(CONFIG)
HEADERS = ((EVENT_TYPE, SEEDED.encode()),)


def a_seed(number: int) -> Record:
    """A seed of as many players as may be in one, none of whom is in another one."""
    first = MOST_PLAYERS * number
    rows = [
        {"player": f"player-{first + i:08}", "mu": 1200.0 + i % 700, "sigma": 90.5, "rounds": 12}
        for i in range(MOST_PLAYERS)
    ]
    event = {"ladder": "duel", "round_id": f"seed-{number}", "at": "2026-01-01T00:00:00Z"}
    value = msgspec.json.encode({**event, "players": rows})
    return Record(0, number, value, HEADERS, received_s=4e9)


def batches(records: int) -> Iterator[list[Record]]:
    """The records of all players, some at a time."""
    for first in range(0, records, TOGETHER):
        yield [a_seed(number) for number in range(first, min(first + TOGETHER, records))]


class _Clock:
    """Adds up the time of some calls."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def call(self, run: Callable[[], object]) -> None:
        began_s = time.perf_counter()
        run()
        self.spent_s += time.perf_counter() - began_s


def _replayed_s(records: int) -> float:
    """Seconds of a replay of one record after the other, without the time to make them."""
    replay, clock = Replay(LADDERS, WINDOW), _Clock()
    for batch in batches(records):
        for each in batch:
            clock.call(partial(replay.feed, [each]))
    assert len(replay.pools["duel"]) == records * MOST_PLAYERS
    return clock.spent_s


def _rebuilt_s(records: int) -> float:
    """Seconds of a rebuild without the reading and the writing."""
    work, clock = Rebuild(LADDERS, WINDOW, 1, Cutoff({}, {0: records}, 1)), _Clock()
    for batch in batches(records):
        clock.call(partial(work.feed, batch))
    clock.call(lambda: sum(map(len, work.beliefs())))
    assert work.written == records * MOST_PLAYERS
    return clock.spent_s


def _measure(effort: Effort) -> Result:
    records = PLAYERS // MOST_PLAYERS // (QUICK if effort.quick else 1)
    players = records * MOST_PLAYERS
    _replayed_s(1), _rebuilt_s(1)  # the kernels are loaded
    replayed, rebuilt = _replayed_s(records), _rebuilt_s(records)
    ratio = {"players": players, "records": records, "replay": players / replayed}
    return result("replay/seeds", players / rebuilt, "players/s", ratio)


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {"replay/seeds": _measure}
