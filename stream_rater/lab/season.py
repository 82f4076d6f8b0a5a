"""Rounds as the laboratory plays them again and again: their players are rows, not names."""

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
    """Rounds of one ladder at one time that share no player: they are rated side by side."""

    ladder: str
    players: int
    """Rows that the ladder has come to, those of this session included."""
    rows: Ints
    """(P,) row of each player, round by round, in order of place."""
    rounds: RoundBatch
    """Without names."""

    def rating(self, *, skip_all_tied: bool) -> tuple["Session | None", list[int]]:
        """Those of the rounds that can teach anything (None: none does), and which they are."""
        teach = self.rounds.rates(np.full(len(self.rounds), skip_all_tied))
        chosen = np.flatnonzero(teach)
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
    """Each valid round by itself; `reject` is called with the offset of each other record, and why.

    `rolls`, if given, is filled with who is who, by ladder.
    """
    rolls = {} if rolls is None else rolls
    judge = Judge(ANY_LADDER, window)
    for some in batches_of(records):
        decoded = judge.decode(some)
        for record, refusal in zip(some, decoded.refusals, strict=True):
            if refusal is not None:
                reject(record.offset, refusal)
        yield from _sessions(decoded.rounds, rolls)


def _sessions(rounds: RoundBatch, rolls: dict[str, PlayerIndex]) -> Iterator[Session]:
    """A session for each of these rounds."""
    entry_starts, player_starts = bounds(rounds.entries).tolist(), bounds(rounds.sizes).tolist()
    for i, head in enumerate(rounds.heads):
        roll = rolls.get(head.ladder)
        if roll is None:
            roll = rolls[head.ladder] = PlayerIndex()
        one, entries = slice(i, i + 1), slice(entry_starts[i], entry_starts[i + 1])
        first, last = player_starts[i], player_starts[i + 1]
        rows = roll.rows(rounds.names.slice(first, last))
        nameless = RoundBatch(
            heads=rounds.heads[one],
            time=rounds.time[one],
            weight=rounds.weight[one],
            ceiling=rounds.ceiling[one],
            entries=rounds.entries[one],
            sizes=rounds.sizes[one],
            place=rounds.place[entries],
            members=rounds.members[entries],
            share=rounds.share[first:last],
            names=NO_NAMES,
        )
        yield Session(head.ladder, len(roll), rows, nameless)


def split(session: Session, size: int, rng: np.random.Generator) -> Session:
    """The same rounds, each dealt at random into rounds of at most `size` entries.

    Entries keep their order among themselves (paper, section 6.5). A part of fewer than two joins
    no round: it is left out. Only rounds without teams can be dealt.
    """
    rows, rounds, start = [], [], 0
    for i in range(len(session.rounds)):
        whole = session.rounds[i].batch
        entries = len(whole.place)
        assert entries == len(whole.share), "a round with teams cannot be dealt"
        dealt = rng.permutation(entries)
        for first in range(0, entries, size):
            chosen = np.sort(dealt[first : first + size])
            if len(chosen) < 2:
                continue
            rows.append(session.rows[start + chosen])
            rounds.append(among(whole, chosen))
        start += entries
    return replace(session, rows=np.concatenate(rows), rounds=RoundBatch.concat(rounds))


def among(whole: RoundBatch, entries: Ints) -> RoundBatch:
    """One round without teams and names, with these of its entries only."""
    size = np.array([len(entries)])
    return structs.replace(
        whole, entries=size, sizes=size, place=whole.place[entries],
        members=whole.members[entries], share=whole.share[entries],
    )  # fmt: skip
