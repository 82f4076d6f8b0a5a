"""Columns of rounds, entries and players are taken, cut and joined together."""

from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.record import Record
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import NO_ROUNDS, PendingRounds
from stream_rater.rating.seats import NO_SEAT
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.decoder import RoundDecoder
from tests.rounds import as_json

TEAMS = st.lists(st.lists(st.integers(1, 3), min_size=2, max_size=4), min_size=1, max_size=6)
"""By round, the size of each team."""


def pending_of(sizes: list[list[int]], in_seats: int = 0) -> PendingRounds:
    """Rounds of teams of these sizes. Each player has a name and a share of their own. The entries
    of so many first rounds have seats and scores."""
    records = []
    for r, teams in enumerate(sizes):
        standings = [
            {
                "team": [f"{r}.{t}.{i}" for i in range(size)],
                "shares": [0.5 + 0.01 * (10 * r + i) / 2 for i in range(size)],
                "rank": t + 1,
                **({"seat": f"{r}.{t}", "score": t} if r < in_seats else {}),
            }
            for t, size in enumerate(teams)
        ]
        records.append(Record(0, 10 * r, as_json(*standings, round_id=f"r{r}"), received_s=4e9))
    return estimation.pending_rounds(records, RoundDecoder(ANY_LADDER).decode(records)[0], 3)


def rows(rounds: RoundBatch) -> list[Any]:
    """By round, all that its columns hold."""
    found = []
    entry = player = 0
    for r, head in enumerate(rounds.heads):
        entries = slice(entry, entry := entry + int(rounds.entries[r]))
        own = slice(player, player := player + int(rounds.sizes[r]))
        found.append(
            [
                head.round_id, int(rounds.time[r]), rounds.place[entries].tolist(),
                rounds.members[entries].tolist(), rounds.share[own].tolist(),
                rounds.names.slice(own.start, own.stop).texts(),
                [NO_SEAT] * len(rounds.place[entries]) if not len(rounds.seat)
                else rounds.seat[entries].tolist(),
                str(np.full(len(rounds.place[entries]), np.nan) if not len(rounds.score)
                else rounds.score[entries]),
            ]
        )  # fmt: skip
    return found


@given(TEAMS, st.integers(0, 6), st.data())
def test_every_column_follows_its_round(
    sizes: list[list[int]], in_seats: int, data: st.DataObject
) -> None:
    """Whatever rounds are taken, cut out or joined, in whatever order, with seats and without."""
    whole = pending_of(sizes, in_seats)
    rounds, all_rows = whole.rounds, rows(pending_of(sizes, in_seats).rounds)
    some = data.draw(st.lists(st.integers(0, len(sizes) - 1)))
    taken = rounds.take(np.array(some, np.int64))
    assert rows(taken) == [all_rows[i] for i in some]
    first = data.draw(st.integers(0, len(sizes)))
    last = data.draw(st.integers(first, len(sizes)))
    assert rows(rounds.slice(first, last)) == all_rows[first:last]
    assert rows(RoundBatch.concat([rounds, taken])) == all_rows + rows(taken)
    without = pending_of(sizes).rounds
    assert rows(RoundBatch.concat([rounds, without])) == all_rows + rows(without)
    assert rows(RoundBatch.concat([without, taken])) == rows(without) + rows(taken)
    assert [rows(each.batch) for each in rounds] == [[row] for row in all_rows]
    rising = np.array(sorted(set(some)), np.int64)
    part = whole.take(rising)
    assert rows(part.rounds) == [all_rows[i] for i in rising]
    assert part.offsets.tolist() == (10 * rising).tolist()
    assert part.fingerprints.tolist() == whole.players(rising).tolist()
    both = PendingRounds.concat([part, whole])
    assert both.offsets.tolist() == part.offsets.tolist() + whole.offsets.tolist()
    assert both.count == part.count + whole.count


def test_nothing_is_one_object() -> None:
    """No rounds are joined, or taken of pending rounds, without making anything."""
    assert PendingRounds.concat([]) is NO_ROUNDS is PendingRounds.concat([NO_ROUNDS, NO_ROUNDS])
    pending = pending_of([[1, 1]])
    assert PendingRounds.concat([NO_ROUNDS, pending]) is pending
    assert pending.take(np.empty(0, np.int64)) is NO_ROUNDS
    assert pending.take(np.array([0])) is pending


def test_names_that_nobody_needs_stay_away() -> None:
    """As in the laboratory, which knows players by their rows."""
    rounds = msgspec.structs.replace(pending_of([[1, 2], [1, 1]]).rounds, names=StringColumn.of([]))
    assert len(rounds.take(np.array([1])).names) == len(rounds.slice(0, 1).names) == 0
    assert len(RoundBatch.concat([rounds, rounds]).names) == 0
