"""The beliefs after a log do not depend on the number of cores, to the bit."""

import random
from itertools import chain

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Player, Record
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.rebuild_store import Rebuild
from stream_rater.replay.cores import Cores
from stream_rater.replay.corrected import verdicts_of_log
from stream_rater.replay.edited_log import Verdicts, records_of
from stream_rater.replay.log_reading import LogReader
from stream_rater.replay.sequential import Replay
from tests import edited_by_hand
from tests.builders.logs import ListedRecords

from .test_corrections import WINDOW, as_lines

NAMES = "lmn"
ALL = {count: Cores(count) for count in (1, 2, 5)}


def a_log(rng: random.Random, size: int) -> list[Record]:
    """Three ladders take turns, with seeds, resets, seasons and all kinds of corrections."""
    each = [edited_by_hand.a_log(rng, size, seeds=True) for _ in NAMES]
    lines = [
        {**line, "ladder": name}
        for together in zip(*each, strict=True)
        for name, line in zip(NAMES, together, strict=True)
    ]
    return list(records_of(as_lines(lines)))


def some_ladders(rng: random.Random, size: int) -> Ladders:
    """Each of any system, and some with other parameters from an offset on."""
    ladders = {}
    for name in NAMES:
        rating, other = rng.choice(edited_by_hand.SYSTEMS)
        changes = [{"from_offset": rng.randrange(1, 3 * size), "rating": other}]
        ladders[name] = {"rating": rating, "changes": changes if rng.random() < 0.6 else []}
    return msgspec.convert({"ladders": ladders}, Ladders)


def replayed(
    log: list[Record], ladders: Ladders, verdicts: Verdicts, cores: Cores
) -> dict[Player, bytes]:
    """As `rate` and `verify` do it."""
    replay, found = Replay(ladders, WINDOW, verdicts=verdicts, cores=cores), dict[Player, bytes]()
    for _ in replay.run(log):
        pass
    for ladder, pool in replay.pools.items():
        rows = pool.played()
        names = pool.names.take(rows).texts()
        found |= zip([(ladder, each) for each in names], pool.records(rows), strict=True)
    return found


def rebuilt(
    log: list[Record], ladders: Ladders, verdicts: Verdicts, cores: Cores
) -> dict[Player, bytes]:
    """As `rebuild` does it."""
    work = Rebuild(ladders, WINDOW, 1, Cutoff({}, {0: len(log)}, 1), verdicts, cores=cores)
    work.run(LogReader(ListedRecords(log, 40), {0: len(log)}))
    return dict(chain.from_iterable(work.beliefs()))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(6, 40), piece=st.sampled_from([1, 2, 7]))
def test_the_same_bits_on_any_number_of_cores(seed: int, size: int, piece: int) -> None:
    """Wherever waves are cut, and whichever ladders are rated at the same time."""
    rng = random.Random(seed)
    log, ladders = a_log(rng, size), some_ladders(rng, size)
    verdicts = verdicts_of_log(lambda: iter(log), ladders, WINDOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stream_rater.replay.cores.LEAST_PIECE", piece)
        patch.setattr("stream_rater.replay.sequential.LEAST_TOGETHER", 1)
        due = replayed(log, ladders, verdicts, ALL[1])
        for cores in ALL.values():
            assert replayed(log, ladders, verdicts, cores) == due
            assert rebuilt(log, ladders, verdicts, cores) == due
