"""Rounds as the laboratory replays them: players are rows instead of names."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Ints
from stream_rater.columns.strings import Names
from stream_rater.config import ANY_LADDER
from stream_rater.contract.record import Record
from stream_rater.lab.player_index import PlayerIndex
from stream_rater.rounds.duplicates import DuplicateWindow
from stream_rater.rounds.validation import Invalid, Reader, Standings, twice_in_round

NOBODY = Names([])


@dataclass(frozen=True, slots=True)
class Session:
    """Rounds of one ladder at one time that share no player, so that they can be rated in one
    call."""

    ladder: str
    players: int
    """The number of rows that the ladder has, including those of this session."""
    rows: Ints
    """(P,) the row of each player, round by round, in order of place."""
    rounds: tuple[Standings, ...]
    """The rounds, without names."""

    def rating(self, *, skip_all_tied: bool) -> tuple["Session | None", list[int]]:
        """The rounds that change ratings, or None if none does, and their indices."""
        indices = [i for i, r in enumerate(self.rounds) if r.rates(skip_all_tied=skip_all_tied)]
        if len(indices) == len(self.rounds):
            return self, indices
        if not indices:
            return None, indices
        ends = np.cumsum([len(each.share) for each in self.rounds])
        parts = np.split(self.rows, ends[:-1])
        rows = np.concatenate([parts[i] for i in indices])
        return replace(self, rows=rows, rounds=tuple(self.rounds[i] for i in indices)), indices


class _Enrolment:
    """Finds the rows of each round's players, and so whether a player occurs twice."""

    def __init__(self, rolls: dict[str, PlayerIndex]) -> None:
        self.rolls = rolls
        self.rows: Ints = np.empty(0, np.int64)
        """The rows of the last checked round."""

    def check(self, standings: Standings) -> None:
        """Find or add the players of a round. Raises Invalid if a player occurs twice."""
        roll = self.rolls.get(standings.ladder)
        if roll is None:
            roll = self.rolls[standings.ladder] = PlayerIndex()
        before = len(roll)
        self.rows, twice = roll.rows(standings.names)
        if twice is not None:
            roll.forget_after(before)
            raise twice_in_round(standings.players[twice])


def sessions_of(
    records: Iterable[Record], window: int, reject: Callable[[int, Invalid], None],
    rolls: dict[str, PlayerIndex] | None = None,
) -> Iterator[Session]:  # fmt: skip
    """Yield each valid round as a session of its own. `reject` receives the offset and the error of
    each other record.

    `rolls`, if given, receives the index of each ladder's players.
    """
    enrolment = _Enrolment({} if rolls is None else rolls)
    verdicts = DuplicateWindow(Reader(ANY_LADDER, enrolment.check), window)
    for record in records:
        try:
            standings = verdicts.judge(record)
        except Invalid as invalid:
            reject(record.offset, invalid)
            continue
        players = len(enrolment.rolls[standings.ladder])
        nameless = structs.replace(standings, names=NOBODY)
        yield Session(standings.ladder, players, enrolment.rows, (nameless,))


def split(session: Session, size: int, rng: np.random.Generator) -> Session:
    """A copy of a session whose rounds are split at random into rounds of at most `size` entries.

    Entries keep their order (paper, section 6.5). A rest of fewer than two entries is left out.
    Rounds with teams cannot be split.
    """
    rows, rounds, start = [], [], 0
    for each in session.rounds:
        entries = len(each.place)
        assert entries == len(each.share), "a round with teams cannot be dealt"
        dealt = rng.permutation(entries)
        for first in range(0, entries, size):
            chosen = np.sort(dealt[first : first + size])
            if len(chosen) < 2:
                continue
            rows.append(session.rows[start + chosen])
            rounds.append(
                structs.replace(
                    each,
                    place=each.place[chosen],
                    entry_starts=np.arange(len(chosen) + 1),
                    share=each.share[chosen],
                )
            )
        start += entries
    return replace(session, rows=np.concatenate(rows), rounds=tuple(rounds))
