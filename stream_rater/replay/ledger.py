"""Validates corrections against the log: the rounds and players that they name must be in it.

A ledger reads a ladder's accepted rounds and corrections in the order of the log. It remembers only
the rounds and players that its corrections name, so it must know all corrections in advance. The
verdict on a correction is a pure function of the log before it. A ledger that begins at a
checkpoint gives the same verdicts, or raises NeedsEarlierRounds if it needs the rounds before the
checkpoint.

The corrections of a whole log are validated in two passes, before another one rates the log. The
first pass collects the corrections. The second pass checks whether the rounds and players that they
name are in the log. They begin only when a replay without verdicts meets a correction.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from stream_rater.columns import arrays, ranges, sharding, strings
from stream_rater.config.ladders import Ladders
from stream_rater.contract import corrections as contract
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import Season
from stream_rater.replay import checkpoint, edited_log, edits
from stream_rater.replay.edits import NO_EDITS, Edits, EditsSoFar, StartedSeason
from stream_rater.rounds import batch, correction_records
from stream_rater.rounds.correction_records import Seed
from stream_rater.rounds.validation import Invalid

ReadRound = Callable[[Record], batch.OneRound]  # Decodes the round in a record; raises Invalid.
RecordPlace = tuple[int, int]  # The place of a record: its partition and offset.

T = TypeVar("T")


class _KnownRound(NamedTuple):
    """An accepted round that a correction may name."""

    round_: Record  # The record of the round, without its value.
    time: int
    completed_at: str
    weight: float
    ceiling: float
    names: tuple[str, ...]
    """The reported names of those players of the round whom a correction names."""


class NeedsEarlierRounds(Exception):
    """A correction names, or may name, a round before those that the ledger has read."""


class Base(NamedTuple):
    """The knowledge of a ledger that begins at a checkpoint about the rounds before it."""

    edits: Edits  # The removals, merges and seasons of all corrections that were accepted before.
    time: int  # No earlier round, seed or reset has a later time (Unix seconds).
    players: Collection[str]  # The players whom the corrections name and who have an earlier round.
    ids: checkpoint.IdFilter | None = None
    """A filter for the ids of earlier rounds and their players. None: every id is possible."""

    def may_have_round(self, round_id: str) -> bool:
        """Whether an earlier round may have this id."""
        return self.ids is None or self.ids.may_have_round(round_id)

    def may_have_players(self, names: Collection[str]) -> bool:
        """Whether one of these names may be in an earlier round, as reported or as amended."""
        return self.ids is None or any(map(self.ids.may_have_player, names))


class Ledger:
    """The accepted rounds and corrections of one ladder so far, and the edits that follow."""

    def __init__(
        self, corrections: Iterable[contract.Correction], read: ReadRound, base: Base | None = None
    ) -> None:
        """`corrections` are all corrections that will be validated. `base` must be given if the
        ledger does not read the first rounds."""
        named = list(corrections)
        self.rounds_examined = 0
        """The number of rounds that were examined for verdicts: the cost of validation."""
        self._corrections = EditsSoFar(NO_EDITS if base is None else base.edits)
        self._base, self._read = base, read
        self._ids = {correction_records.round_in(each) for each in named} - {""}
        self._names = {name for each in named for name in correction_records.names_in(each)}
        self._hashes = strings.StringColumn.of(list(self._names)).hashes
        self._known: dict[int, _KnownRound] = {}
        """The rounds that corrections may name, by their offsets."""
        self._played: dict[str, set[int]] = {}
        """For each name, the offsets of rounds that have this player, or had until an amendment."""
        self._latest: dict[str, int] = {}
        """For each id, the offset of the last round, seed or reset with this id."""
        self._seeds: dict[int, int] = {}
        """The times of the seeds and resets that corrections may name, by their offsets."""
        self._seeded: dict[str, set[int]] = {}
        """For each name, the offsets of the seeds and resets that have this player."""

    @property
    def edits(self) -> Edits:
        """The edits by all corrections that were accepted so far."""
        return self._corrections.edits

    def add(self, rounds: batch.RoundBatch, offsets: arrays.Ints, partition: int) -> None:
        """Read R accepted rounds of the ladder. `offsets` (R,) are their offsets."""
        named = np.isin(rounds.names.hashes, self._hashes)
        starts = ranges.bounds(rounds.sizes)
        for i, head in enumerate(rounds.heads):
            own = named[starts[i] : starts[i + 1]]
            if head.round_id in self._ids:
                self._latest[head.round_id] = int(offsets[i])
            elif not own.any():
                continue
            rows = starts[i] + np.flatnonzero(own)
            place = Record(partition, int(offsets[i]), None)
            self._remember_round(rounds[i], place, rows=rows - starts[i])

    def add_seed(self, seed: Seed) -> None:
        """Read an accepted seed or reset of the ladder."""
        rows = np.flatnonzero(np.isin(seed.names.hashes, self._hashes))
        if seed.round_id in self._ids:
            self._latest[seed.round_id] = seed.offset
        elif not len(rows):
            return
        self._seeds[seed.offset] = seed.time
        for name in seed.names.take(rows).texts():
            self._seeded.setdefault(name, set()).add(seed.offset)

    def _remember_round(self, standings: batch.OneRound, place: Record, rows: arrays.Ints) -> None:
        found = standings.batch.names.take(rows).texts()
        names = tuple(name for name in found if name in self._names)
        self._known[place.offset] = _KnownRound(
            place, standings.time, standings.completed_at, standings.weight, standings.ceiling,
            names,
        )  # fmt: skip
        for name in names:
            self._played.setdefault(name, set()).add(place.offset)

    def validate(
        self, correction: contract.Correction, received_s: float, offset: int
    ) -> int | None:
        """Validate the correction that was read at this offset. If it is valid, `edits` includes it
        from now on. Returns the offset of the first round that the correction changes; None if it
        changes no earlier round. `received_s` is the time when the log received it, in Unix
        seconds. Raises Invalid, or NeedsEarlierRounds."""
        try:
            match correction:
                case contract.RoundVoided():
                    place = self._find(correction.round_id)
                    if place in self._corrections.voided:
                        text = f"round_id {correction.round_id!r} is voided"
                        raise Invalid("already-voided", text)
                    self._corrections.void(place)
                    return place
                case contract.RoundAmended():
                    place = self._find(correction.round_id)
                    if place in self._seeds:
                        text = f"round_id {correction.round_id!r} is a seed or a reset: void it"
                        raise Invalid("bad-amend", text)
                    self._amend(correction, place, received_s)
                    return place
                case contract.PlayerRemoved():
                    return self._remove(correction)
                case contract.PlayerMerged():
                    return self._merge(correction)
                case contract.SeasonStarted():
                    self._start(correction, offset)
        except Invalid as invalid:
            raise correction_records.about(correction, invalid) from None
        return None

    def accept(self, correction: contract.Correction, received_s: float, offset: int) -> None:
        """Accept a correction that was found valid at this place before. This examines no more
        rounds than necessary. Raises NeedsEarlierRounds."""
        match correction:
            case contract.PlayerRemoved():
                rounds = self._rounds_of(correction.player)
                if self._base is not None and next(rounds, None) is None:
                    raise NeedsEarlierRounds
                self._accept_removal(correction)
            case contract.PlayerMerged():
                if self._base is not None:
                    raise NeedsEarlierRounds
                self._corrections.change(correction.player, correction.into)
            case _:
                self.validate(correction, received_s, offset)

    def repeat(self, correction: contract.Correction, received_s: float) -> None:
        """Apply a correction that the base includes to its rounds that were read after the base."""
        if not isinstance(correction, contract.RoundVoided | contract.RoundAmended):
            return
        place = self._latest.get(correction.round_id)
        if place is None:
            return
        if isinstance(correction, contract.RoundVoided):
            self._corrections.void(place)
        else:
            self._amend(correction, place, received_s)

    def _find(self, round_id: str) -> int:
        """The offset of the last round with this id. Raises Invalid if there is none, or
        NeedsEarlierRounds if it may be before the base."""
        offset = self._latest.get(round_id)
        if offset is None and self._base is not None and self._base.may_have_round(round_id):
            raise NeedsEarlierRounds
        if offset is None:
            raise Invalid("unknown-round", f"round_id {round_id!r} is not on this ladder")
        return offset

    def _amend(self, correction: contract.RoundAmended, offset: int, received_s: float) -> None:
        known = self._known[offset]
        message = correction_records.amended_message(
            correction, known.completed_at, known.weight, known.ceiling
        )
        place_and_time = Record(known.round_.partition, offset, message, received_s=received_s)
        standings = self._read(place_and_time)
        self._remember_round(standings, known.round_, rows=np.arange(len(standings.batch.names)))
        # A field that an amendment leaves out keeps its first reported value.
        self._known[offset] = known._replace(time=standings.time, names=self._known[offset].names)
        self._corrections.amend(offset, standings.batch)

    def _rounds_of(self, player: str) -> Iterator[tuple[int, int]]:
        """Yield offset and time of each round that counts and now has an entry of the player."""
        now = self._corrections.entries.now()
        for offset, names in self._with_names_of(player, self._played):
            known = self._known[offset]
            own = sorted(names.intersection(known.names))
            if own and player in now.players_of(own, known.time):
                yield offset, known.time

    def _seeds_of(self, player: str) -> Iterator[tuple[int, int]]:
        """Yield the offset and time of each seed and reset that counts and now has the player."""
        now = self._corrections.entries.now()
        for offset, names in self._with_names_of(player, self._seeded):
            own = sorted(name for name in names if offset in self._seeded.get(name, ()))
            if player in now.players_of(own, self._seeds[offset], seeds=True):
                yield offset, self._seeds[offset]

    def _with_names_of(
        self, player: str, offsets_of: Mapping[str, set[int]]
    ) -> Iterator[tuple[int, set[str]]]:
        """Yield the offset of each round or seed in `offsets_of` that counts and has one of the
        names whose entries the player owns now. All these names are yielded with each offset."""
        names = set(self._corrections.entries.names_of(player))
        offsets = set[int]().union(*(offsets_of.get(name, ()) for name in names))
        for offset in offsets - self._corrections.voided:
            self.rounds_examined += 1
            yield offset, names

    def _required_rounds(self, player: str, *, seeds: bool = False) -> list[tuple[int, int]]:
        """The offset and time of each round of a player and, with `seeds`, of each seed. If there
        is none, raises Invalid or, if the base may have one, NeedsEarlierRounds."""
        found = [*self._rounds_of(player), *(self._seeds_of(player) if seeds else ())]
        if found:
            return found
        names = self._corrections.entries.names_of(player)
        if self._base is not None and self._base.may_have_players(names):
            raise NeedsEarlierRounds
        raise Invalid("unknown-player", f"player {player!r} stands in no round of this ladder")

    def _remove(self, correction: contract.PlayerRemoved) -> int | None:
        found = self._required_rounds(correction.player, seeds=correction.seed is True)
        span = self._accept_removal(correction)
        return min((offset for offset, time in found if span.has(time)), default=None)

    def _accept_removal(self, correction: contract.PlayerRemoved) -> correction_records.Span:
        """Accept a removal. Returns its span. Raises NeedsEarlierRounds."""
        span = correction_records.span_of(correction)
        base = self._base
        if base is not None and span.since <= base.time and correction.player in base.players:
            raise NeedsEarlierRounds
        self._corrections.change(correction.player, span)
        return span

    def _merge(self, correction: contract.PlayerMerged) -> int | None:
        mine = {offset for offset, _ in self._required_rounds(correction.player, seeds=True)}
        theirs = {offset for offset, _ in self._required_rounds(correction.into, seeds=True)}
        if self._base is not None:  # they may have met in an earlier round
            raise NeedsEarlierRounds
        if met := (mine & theirs) - self._seeds.keys():
            raise Invalid(
                "bad-merge",
                f"players {correction.player!r} and {correction.into!r} stood in one round, at "
                f"offset {min(met)}",
            )
        self._corrections.change(correction.player, correction.into)
        return min(mine)

    def _start(self, correction: contract.SeasonStarted, offset: int) -> None:
        seasons = self._corrections.seasons
        if seasons and correction.season <= (last := seasons[-1].season.number):
            raise Invalid("bad-season", f"season: {correction.season} does not follow {last}")
        if len(seasons) == (most := correction_records.MOST_SEASONS):
            raise Invalid("bad-season", f"season: a ladder has {most} seasons at most")
        self._corrections.start(StartedSeason.of(correction, offset))


# --- all corrections of a log ---------------------------------------------------------------------


def with_verdicts(
    run: Callable[[edited_log.Verdicts | None], T], read_log: Callable[[], Iterable[Record]],
    ladders: Ladders, window: int, partitions: int = sharding.ANYWHERE,
) -> T:  # fmt: skip
    """Return the result of `run`. The first call passes None, which is enough for a log without
    corrections. If it raises MissingVerdicts, `run` is called again with the verdicts on the
    corrections. `read_log` yields the records of the log from the first one, each time it is
    called."""
    try:
        return run(None)
    except edited_log.MissingVerdicts:
        verdicts = verdicts_of_log(read_log, ladders, window, partitions)
    return run(verdicts)


def verdicts_of_log(
    read_log: Callable[[], Iterable[Record]], ladders: Ladders, window: int,
    partitions: int = sharding.ANYWHERE,
) -> edited_log.Verdicts:  # fmt: skip
    """The verdicts on all corrections in the records of `round-completed`. `read_log` yields these
    records from the first one, each time it is called."""
    found: dict[RecordPlace, contract.Correction] = {}
    rejections: dict[RecordPlace, Invalid] = {}
    for record in read_log():
        if correction_records.is_correction(record):
            place = record.partition, record.offset
            try:
                found[place] = correction_records.decode_correction(record, ladders, partitions)
            except Invalid as invalid:
                rejections[place] = invalid
    if not found:
        return edited_log.Verdicts({}, rejections)
    second = _SecondPass(found, rejections, edited_log.RecordValidator(ladders, window, partitions))
    for records in edited_log.batches_of(read_log(), mixed=True):
        for each in second.validator.read(records):
            second.read(each)
    return second.verdicts()


class _SecondPass:
    """Validates the corrections in the order of the log. The verdict on each depends only on the
    log before it."""

    def __init__(
        self, found: dict[RecordPlace, contract.Correction],
        rejections: dict[RecordPlace, Invalid], validator: edited_log.RecordValidator,
    ) -> None:  # fmt: skip
        self.validator, self._found, self._rejections = validator, found, rejections
        self._starts: dict[RecordPlace, tuple[str, Season]] = {}
        by_ladder: dict[str, list[contract.Correction]] = {}
        for correction in found.values():
            by_ladder.setdefault(correction.ladder, []).append(correction)
        read = validator.round_decoder.read
        self._ledgers = {ladder: Ledger(group, read) for ladder, group in by_ladder.items()}
        self._batched: dict[str, list[tuple[Record, contract.Correction]]] = {}
        """For each ladder, the corrections that wait to be applied, with their records."""
        self._applied: dict[str, list[edited_log.AppliedCorrection]] = {}

    def read(self, each: edited_log.LoggedRounds | Seed | Record) -> None:
        """Read a batch of rounds, a seed, or a correction."""
        if isinstance(each, edited_log.LoggedRounds):
            self._read_rounds(each)
        elif isinstance(each, Seed):
            if each.ladder in self._ledgers:
                self._ledgers[each.ladder].add_seed(each)
        elif (found := self._found.get((each.partition, each.offset))) is not None:
            self._read_correction(each, found)

    def _read_rounds(self, group: edited_log.LoggedRounds) -> None:
        ladders = (head.ladder for head in group.rounds.heads)
        keys = zip(ladders, group.partition.tolist(), strict=True)
        for (ladder, partition), places in edits.indices_by(keys).items():
            if ladder in self._ledgers:
                own = group.take(places)
                self._ledgers[ladder].add(own.rounds, own.offset, partition)

    def _read_correction(self, record: Record, correction: contract.Correction) -> None:
        deferred = self._batched.setdefault(correction.ladder, [])
        if isinstance(correction, contract.Batched) and correction.batched:
            deferred.append((record, correction))
            self._record_outcome(record, correction, -1)
        elif isinstance(correction, contract.CorrectionsApplied):
            for each in deferred:
                self._validate(*each, record.offset)
            deferred.clear()
            self._record_outcome(record, correction, record.offset)
        else:
            self._validate(record, correction, record.offset)

    def _record_outcome(self, record: Record, correction: contract.Correction, at: int) -> None:
        outcome = edited_log.AppliedCorrection(record.offset, correction, at)
        self._applied.setdefault(correction.ladder, []).append(outcome)

    def _validate(self, record: Record, correction: contract.Correction, at: int) -> None:
        ledger, place = self._ledgers[correction.ladder], (record.partition, record.offset)
        try:
            ledger.validate(correction, record.received_s, record.offset)
            if isinstance(correction, contract.SeasonStarted):
                self._starts[place] = correction.ladder, StartedSeason.of(correction, at).season
            self._record_outcome(record, correction, at)
        except Invalid as invalid:
            self._rejections[place] = invalid

    def verdicts(self) -> edited_log.Verdicts:
        """The verdicts on all corrections that were read."""
        found = {ladder: ledger.edits for ladder, ledger in self._ledgers.items()}
        return edited_log.Verdicts(found, self._rejections, self._starts, self._applied)
