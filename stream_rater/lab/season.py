"""Rounds as the laboratory replays them: players are rows instead of names."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Ints
from stream_rater.columns.ranges import bounds, spread
from stream_rater.columns.strings import StringColumn
from stream_rater.config import ANY_LADDER
from stream_rater.contract.record import Record
from stream_rater.lab.offline import Judge, batches_of
from stream_rater.lab.player_index import PlayerIndex
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.validation import Invalid

NO_NAMES = StringColumn.of([])


@dataclass(frozen=True, slots=True)
class Session:
    """Rounds of one ladder at one time that share no player, so that they can be rated in one
    call."""

    ladder: str
    players: int
    """The number of rows that the ladder has, including those of this session."""
    rows: Ints
    """(P,) the row of each player, round by round, in order of place."""
    rounds: RoundBatch
    """The rounds, without names."""

    def rating(self, *, skip_all_tied: bool) -> tuple["Session | None", list[int]]:
        """The rounds that change ratings, or None if none does, and their indices."""
        chosen = np.flatnonzero(self.rounds.rates(np.full(len(self.rounds), skip_all_tied)))
        if len(chosen) == len(self.rounds):
            return self, chosen.tolist()
        if not len(chosen):
            return None, []
        sizes = self.rounds.sizes
        rows = self.rows[spread(bounds(sizes)[chosen], sizes[chosen])]
        return replace(self, rows=rows, rounds=self.rounds.take(chosen)), chosen.tolist()


def sessions_of(
    records: Iterable[Record], window: int, reject: Callable[[int, Invalid], None],
    rolls: dict[str, PlayerIndex] | None = None,
) -> Iterator[Session]:  # fmt: skip
    """Yield each valid round as a session of its own. `reject` receives the offset and the error of
    each other record.

    `rolls`, if given, receives the index of each ladder's players.
    """
    rolls = {} if rolls is None else rolls
    judge = Judge(ANY_LADDER, window)
    for some in batches_of(records):
        decoded = judge.decode(some)
        sessions = _sessions(decoded.rounds, rolls)
        for record, refusal in zip(some, decoded.refusals, strict=True):
            if refusal is not None:
                reject(record.offset, refusal)
            else:
                yield next(sessions)


def _sessions(rounds: RoundBatch, rolls: dict[str, PlayerIndex]) -> Iterator[Session]:
    """Yield a session for each of these rounds."""
    for each in rounds:
        roll = rolls.get(each.ladder)
        if roll is None:
            roll = rolls[each.ladder] = PlayerIndex()
        rows = roll.rows(each.batch.names)
        nameless = structs.replace(each.batch, names=NO_NAMES)
        yield Session(each.ladder, len(roll), rows, nameless)


def split(session: Session, size: int, rng: np.random.Generator) -> Session:
    """A copy of a session whose rounds are split at random into rounds of at most `size` entries.

    Entries keep their order (paper, section 6.5). A rest of fewer than two entries is left out.
    Rounds with teams cannot be split.
    """
    rows, rounds, start = [], [], 0
    for each in session.rounds:
        whole = each.batch
        entries = len(whole.place)
        assert entries == len(whole.share), "a round with teams cannot be dealt"
        dealt = rng.permutation(entries)
        for first in range(0, entries, size):
            chosen = np.sort(dealt[first : first + size])
            if len(chosen) < 2:
                continue
            rows.append(session.rows[start + chosen])
            rounds.append(_with_entries(whole, chosen))
        start += entries
    return replace(session, rows=np.concatenate(rows), rounds=RoundBatch.concat(rounds))


def _with_entries(whole: RoundBatch, entries: Ints) -> RoundBatch:
    """One round, without teams and names, reduced to these entries."""
    size = np.array([len(entries)])
    return structs.replace(
        whole, entries=size, sizes=size, place=whole.place[entries],
        members=whole.members[entries], share=whole.share[entries],
    )  # fmt: skip
