"""Rounds as the laboratory plays them again and again: their players are rows, not names."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Ints
from stream_rater.columns.strings import Names
from stream_rater.config import ANY_LADDER
from stream_rater.contract.record import Record
from stream_rater.lab.player_index import Roll
from stream_rater.rounds.duplicates import Verdicts
from stream_rater.rounds.validation import Invalid, Reader, Standings, twice_in_round

NOBODY = Names([])


@dataclass(frozen=True, slots=True)
class Session:
    """Rounds of one ladder at one time that share no player: they are rated side by side."""

    ladder: str
    players: int
    """Rows that the ladder has come to, those of this session included."""
    rows: Ints
    """(P,) row of each player, round by round, in order of place."""
    rounds: tuple[Standings, ...]
    """Without names."""

    def rating(self, *, skip_all_tied: bool) -> tuple["Session | None", list[int]]:
        """Those of the rounds that can teach anything (None: none does), and which they are."""
        those = [i for i, r in enumerate(self.rounds) if r.rates(skip_all_tied=skip_all_tied)]
        if len(those) == len(self.rounds):
            return self, those
        if not those:
            return None, those
        ends = np.cumsum([len(each.share) for each in self.rounds])
        parts = np.split(self.rows, ends[:-1])
        rows = np.concatenate([parts[i] for i in those])
        return replace(self, rows=rows, rounds=tuple(self.rounds[i] for i in those)), those


class _Enrolment:
    """Finds each round's rows, and with them, in passing, whether anybody stands there twice."""

    def __init__(self, rolls: dict[str, Roll]) -> None:
        self.rolls = rolls
        self.rows: Ints = np.empty(0, np.int64)
        """Of the round checked last."""

    def check(self, standings: Standings) -> None:
        """Enrol the players of a round; raises Invalid."""
        roll = self.rolls.get(standings.ladder)
        if roll is None:
            roll = self.rolls[standings.ladder] = Roll()
        before = len(roll)
        self.rows, twice = roll.rows(standings.names)
        if twice is not None:
            roll.forget_after(before)
            raise twice_in_round(standings.players[twice])


def sessions_of(
    records: Iterable[Record], window: int, reject: Callable[[int, Invalid], None],
    rolls: dict[str, Roll] | None = None,
) -> Iterator[Session]:  # fmt: skip
    """Each valid round by itself; `reject` hears of the others, with their offset.

    `rolls`, if given, is filled with who is who, by ladder.
    """
    enrolment = _Enrolment({} if rolls is None else rolls)
    verdicts = Verdicts(Reader(ANY_LADDER, enrolment.check), window)
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
    """The same rounds, each dealt at random into rounds of at most `size` entries.

    Entries keep their order among themselves (paper, section 6.5). A part of fewer than two joins
    no round: it is left out. Only rounds without teams can be dealt.
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
