"""The verdict on corrections, as far as it depends on the log: is what they are about there?

A ledger reads a ladder's accepted rounds in order, and its corrections between them. It keeps only
what its corrections may ask for, so it must know beforehand which rounds and players these name.
The verdict on a correction is a pure function of the log before it. A ledger that begins at a
checkpoint gives the same verdicts, or says that the rounds before it must be read (Earlier).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.ranges import bounds
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.corrections import (
    Correction,
    PlayerMerged,
    PlayerRemoved,
    RoundAmended,
    RoundVoided,
    SeasonStarted,
)
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import Season
from stream_rater.replay.edits import NO_EDITS, Edits, StartedSeason
from stream_rater.rounds.batch import RoundBatch, Standings
from stream_rater.rounds.corrections import (
    MOST_SEASONS,
    amended_message,
    names_in,
    round_in,
    span_of,
)
from stream_rater.rounds.validation import Invalid

ReadRound = Callable[[Record], Standings]
"""Decodes the round in a record; raises Invalid."""


class _Known(NamedTuple):
    """An accepted round that a correction may be about."""

    round_: Record
    """Where it was read, without its bytes."""
    time: int
    completed_at: str
    weight: float
    ceiling: float
    names: tuple[str, ...]
    """Of its players those who are asked for, as reported."""


class Earlier(Exception):
    """A correction is, or may be, about a round before those that the ledger has read."""


class Base(NamedTuple):
    """What a ledger knows of the rounds before those that it reads."""

    edits: Edits
    """Of all corrections that were accepted, what they say of players and seasons."""
    time: int
    """No round before was completed later, Unix seconds."""
    players: Collection[str]
    """Those whom its corrections name and who have a round before."""


class Ledger:
    """The accepted rounds and corrections of one ladder so far, and what they make of the log."""

    def __init__(
        self, corrections: Iterable[Correction], read: ReadRound, base: Base | None = None
    ) -> None:
        """`corrections`: all that will be judged. `base`: of a ledger that does not read the first
        rounds."""
        some = list(corrections)
        self.edits: Edits = NO_EDITS if base is None else base.edits
        """All corrections that were accepted."""
        self._base = base
        self._read = read
        self._ids = {round_in(each) for each in some} - {""}
        self._names = {name for each in some for name in names_in(each)}
        self._hashes = StringColumn.of(list(self._names)).hashes
        self._known: dict[int, _Known] = {}
        """By offset, in order."""
        self._latest: dict[str, int] = {}
        """By round id, the offset of the last round that had it."""

    def add(self, rounds: RoundBatch, offsets: Ints, partition: int) -> None:
        """Read accepted rounds of the ladder, which were at these (R,) offsets."""
        named = np.isin(rounds.names.hashes, self._hashes)
        starts = bounds(rounds.sizes)
        for i, head in enumerate(rounds.heads):
            own = named[starts[i] : starts[i + 1]]
            if head.round_id in self._ids:
                self._latest[head.round_id] = int(offsets[i])
            elif not own.any():
                continue
            rows = starts[i] + np.flatnonzero(own)
            self._know(rounds[i], Record(partition, int(offsets[i]), None), rows=rows - starts[i])

    def _know(self, standings: Standings, place: Record, rows: Ints) -> None:
        names = standings.batch.names.take(rows).texts()
        self._known[place.offset] = _Known(
            place, standings.time, standings.completed_at, standings.weight, standings.ceiling,
            tuple(name for name in names if name in self._names),
        )  # fmt: skip

    def judge(self, correction: Correction, received_s: float, offset: int) -> int | None:
        """Accept a correction, which was read at this offset: `edits` has it from now on.

        Returns the offset of the first round that it changes, or None if it changes none of those
        before it. `received_s` is when the log took it in. Raises Invalid, or Earlier.
        """
        match correction:
            case RoundVoided():
                place = self._find(correction.round_id)
                if place in self.edits.voided:
                    raise Invalid("already-voided", f"round_id {correction.round_id!r} is voided")
                self.edits = self.edits.void(place)
                return place
            case RoundAmended():
                place = self._find(correction.round_id)
                self._amend(correction, place, received_s)
                return place
            case PlayerRemoved():
                return self._remove(correction)
            case PlayerMerged():
                return self._merge(correction)
            case SeasonStarted():
                self._start(correction, offset)
        return None

    def repeat(self, correction: Correction, received_s: float) -> None:
        """Accept a correction that the base knows, as far as it is about rounds that were read."""
        if not isinstance(correction, RoundVoided | RoundAmended):
            return
        place = self._latest.get(correction.round_id)
        if place is None:
            return
        if isinstance(correction, RoundVoided):
            self.edits = self.edits.void(place)
        else:
            self._amend(correction, place, received_s)

    def _find(self, round_id: str) -> int:
        """The offset of the round that has this id: the last one, if there are several."""
        offset = self._latest.get(round_id)
        if offset is None and self._base is not None:
            raise Earlier
        if offset is None:
            raise Invalid("unknown-round", f"round_id {round_id!r} is not on this ladder")
        return offset

    def _amend(self, correction: RoundAmended, offset: int, received_s: float) -> None:
        known = self._known[offset]
        message = amended_message(correction, known.completed_at, known.weight, known.ceiling)
        where = Record(known.round_.partition, offset, message, received_s=received_s)
        standings = self._read(where)
        self._know(standings, known.round_, rows=np.arange(len(standings.batch.names)))
        # What a field left out keeps is what was reported first.
        self._known[offset] = known._replace(time=standings.time, names=self._known[offset].names)
        self.edits = self.edits.amend(offset, standings.batch)

    def _rounds_of(self, player: str) -> Iterator[tuple[int, int]]:
        """Offset and time of each round that counts and has an entry of the player now."""
        names = set(self.edits.names_of(player))
        for offset, known in self._known.items():
            own = names.intersection(known.names)
            if own and offset not in self.edits.voided:
                who = self.edits.who(sorted(own), known.time)
                if player in who:
                    yield offset, known.time

    def _must_play(self, player: str) -> list[tuple[int, int]]:
        rounds = list(self._rounds_of(player))
        if not rounds and self._base is not None:
            raise Earlier
        if not rounds:
            raise Invalid("unknown-player", f"player {player!r} stands in no round of this ladder")
        return rounds

    def _remove(self, correction: PlayerRemoved) -> int | None:
        rounds = self._must_play(correction.player)
        since, until = span = span_of(correction)
        base = self._base
        if base is not None and since <= base.time and correction.player in base.players:
            raise Earlier
        self.edits = self.edits.remove(correction.player, span)
        return min((offset for offset, time in rounds if since <= time < until), default=None)

    def _merge(self, correction: PlayerMerged) -> int | None:
        if self._base is not None:  # they may have met
            raise Earlier
        mine = {offset for offset, _ in self._must_play(correction.player)}
        theirs = {offset for offset, _ in self._must_play(correction.into)}
        if met := mine & theirs:
            raise Invalid(
                "bad-merge",
                f"players {correction.player!r} and {correction.into!r} stood in one round, at "
                f"offset {min(met)}",
            )
        self.edits = self.edits.merge(correction.player, correction.into)
        return min(mine)

    def _start(self, correction: SeasonStarted, offset: int) -> None:
        seasons = self.edits.seasons
        if seasons and correction.season <= seasons[-1].season.number:
            raise Invalid(
                "bad-season",
                f"season: {correction.season} does not follow {seasons[-1].season.number}",
            )
        if len(seasons) == MOST_SEASONS:
            raise Invalid("bad-season", f"season: a ladder has {MOST_SEASONS} seasons at most")
        season = Season(correction.season, correction.keep, correction.sigma)
        self.edits = self.edits.start(StartedSeason(offset, season))
