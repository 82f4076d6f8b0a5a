"""What one ladder's records must lead to: a replay of its edited log, after each correction."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladder
from stream_rater.contract.corrections import Batched, Correction, CorrectionsApplied, name_of
from stream_rater.contract.events import RatingChanged
from stream_rater.contract.record import Headers, Player, Record
from stream_rater.pipeline.corrections.correction_work import THRESHOLD
from stream_rater.rating import record as belief_record
from stream_rater.rating import stages
from stream_rater.rating.model import newcomers
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.edits import Edits
from stream_rater.replay.ledger import Ledger
from stream_rater.replay.pool import Pool
from stream_rater.rounds.batch import OneRound
from stream_rater.rounds.correction_records import Seed
from stream_rater.rounds.validation import Invalid


class EventValues(NamedTuple):
    cause: str  # of a correction; else the empty string
    round_id: str
    rank: int | None
    mu: float
    sigma: float
    previous_mu: float
    previous_sigma: float
    performance: float | None
    rounds: int
    offset: int
    season: int | None
    trace: Headers


def values_of(change: RatingChanged, trace: Headers = ()) -> EventValues:
    """What an event says, to be compared."""
    return EventValues(
        change.correction.cause if change.correction else "", change.round_id, change.rank,
        change.mu, change.sigma, change.previous_mu, change.previous_sigma, change.performance,
        change.rounds, change.offset, change.season, trace,
    )  # fmt: skip


class Rated(NamedTuple):
    standings: OneRound
    rating: RatingConfig
    record: Record


class Published(NamedTuple):
    """What subscribers know of a player."""

    mu: float
    sigma: float


class Mark(NamedTuple):
    """What a correction wrote into a belief."""

    offset: int
    published: Published
    unannounced: bool
    data: bytes  # the rest of it


class WrittenBy(Enum):
    """Who wrote the records of a store."""

    APPLIED = auto()  # updaters
    REPLAYED = auto()  # a rebuild, which knows only the unannounced part of a correction
    FROM_PARTS = auto()  # a rebuild that found the correction in parts: it was in progress
    CLOSED = auto()  # a rebuild of a partition that lost records: it publishes what differs


@dataclass
class LadderTruth:
    ladder: str
    config: Ladder
    ledger: Ledger
    records: list[Rated | Seed] = field(default_factory=list)  # rounds, seeds and resets
    seed_rows: dict[str, set[int]] = field(default_factory=dict)
    """The offsets of each player's rows in seeds and resets, with or without an effect."""
    changes: dict[str, list[EventValues]] = field(default_factory=dict)  # by player, in order
    rejections: list[tuple[int, int, str]] = field(default_factory=list)
    """(partition, offset, code)."""
    marks: dict[str, Mark] = field(default_factory=dict)  # by player, after the last round
    _published: dict[str, Published] = field(default_factory=dict)
    _waiting: list[tuple[Record, Correction]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool = Pool(self.config.rating)

    @property
    def edits(self) -> Edits:
        return self.ledger.edits

    def rate(self, rated: Rated) -> None:
        batch, offset = rated.standings.batch, rated.record.offset
        self.ledger.add(batch, np.array([offset]), rated.record.partition)
        self.records.append(rated)
        edited = self.edits.edited(batch, offset)
        if edited is not None:
            self._publish(rated, OneRound(edited))

    def _publish(self, rated: Rated, standings: OneRound) -> None:
        found = _rate(self.pool, standings, rated)
        if found is None:
            return
        header = dict(self.pool)
        places = np.repeat(standings.batch.place, standings.batch.members).tolist()
        season = self.pool.rule.season
        for player, place, performance in zip(standings.players, places, found, strict=True):
            row = header[player]
            published = self._published.get(player) or self._began(player, row)
            self._published[player] = Published(float(row["mu"]), float(row["sigma"]))
            self.marks.pop(player, None)
            self.changes.setdefault(player, []).append(
                EventValues(
                    "", standings.round_id, place or None, *self._published[player], *published,
                    performance, int(row["rounds"]), rated.record.offset, season,
                    rated.record.headers,
                )
            )  # fmt: skip

    def _began(self, player: str, row: Any) -> Published:
        """The previous values of a player's first event: those before any round or correction."""
        if player not in self.marks and int(row["rounds"]) == 1:
            return Published(float(row["previous_mu"]), float(row["previous_sigma"]))
        return Published(self.pool.rule.initial_mu, self.pool.rule.initial_sigma)

    def seed(self, reported: Seed) -> None:
        self.ledger.add_seed(reported)
        self.records.append(reported)
        seed = self.edits.seed(reported)
        if seed is None:
            return
        chosen, header = _seed(self.pool, seed), dict(self.pool)
        for player in seed.names.texts():
            self.seed_rows.setdefault(player, set()).add(seed.offset)
        for player in seed.names.take(chosen).texts():
            row, published = header[player], self._last_published(player)
            self._published[player] = Published(float(row["mu"]), float(row["sigma"]))
            self.marks.pop(player, None)
            self.changes.setdefault(player, []).append(
                EventValues(
                    seed.kind, seed.round_id, None, *self._published[player], *published, None,
                    int(row["rounds"]), seed.offset, self.pool.rule.season, (),
                )
            )  # fmt: skip

    def _last_published(self, player: str) -> Published:
        """What was last published of a player; the initial values before the first event."""
        if player in self._published:
            return self._published[player]
        if player in self.marks:
            return self.marks[player].published
        return Published(self.pool.rule.initial_mu, self.pool.rule.initial_sigma)

    def correct(self, record: Record, correction: Correction) -> None:
        """The next correction, which is well-formed."""
        if isinstance(correction, Batched) and correction.batched:
            self._waiting.append((record, correction))
            return
        some = [(record, correction)]
        if isinstance(correction, CorrectionsApplied):
            some, self._waiting = self._waiting, []
        for each, what in some:
            try:
                self.ledger.validate(what, each.received_s, each.offset)
            except Invalid as invalid:
                self.rejections.append((each.partition, each.offset, invalid.code))
        self._replay(record, correction)

    def _replay(self, record: Record, correction: Correction) -> None:
        """Rate all rounds again, and publish an event of each player who moves."""
        before, self.pool = self.pool, self.replayed()
        names = dict.fromkeys([*dict(before), *dict(self.pool)])
        self.pool.rows(StringColumn.of(list(names)))
        before.rows(StringColumn.of(list(names)))
        header, old = dict(self.pool), dict(before)
        rule = stages.rule_of(self.config.at(record.offset).rating)
        initial = Published(rule.initial_mu, rule.initial_sigma)
        for player in names:
            plays = int(header[player]["rounds"]) or int(old[player]["rounds"])
            if not plays or self.pool.belief_bytes(player) == before.belief_bytes(player):
                continue
            published = self._published.get(player, initial)
            now, newcomer = initial, newcomers(1, 1, *initial, coded=True)
            data = belief_record.encode(newcomer)[0]
            if header[player]["rounds"]:
                now = Published(float(header[player]["mu"]), float(header[player]["sigma"]))
                data = self.pool.belief_bytes(player)
            moved = abs(rule.rating(*now) - rule.rating(*published))
            self.marks[player] = Mark(record.offset, published, moved < THRESHOLD, data)
            if moved < THRESHOLD:
                continue
            self._published[player] = now
            self.changes.setdefault(player, []).append(
                EventValues(
                    name_of(correction), getattr(correction, "round_id", ""), None, *now,
                    *published, None, int(header[player]["rounds"]), record.offset,
                    self.pool.rule.season, (),
                )
            )  # fmt: skip

    def replayed(self) -> Pool:
        """A pool with all records so far, edited as all corrections so far say."""
        pool, seasons = Pool(self.config.rating), list(self.edits.seasons)
        for each in self.records:
            while seasons and seasons[0].offset < _offset(each):
                pool.start_season(seasons.pop(0).season)
            if isinstance(each, Seed):
                if (seed := self.edits.seed(each)) is not None:
                    _seed(pool, seed)
                continue
            edited = self.edits.edited(each.standings.batch, each.record.offset)
            if edited is not None:
                _rate(pool, OneRound(edited), each)
        for started in seasons:
            pool.start_season(started.season)
        return pool

    def beliefs(self, written_by: WrittenBy) -> dict[Player, bytes]:
        """The records that the store must hold, as `written_by` says."""
        found = {}
        for player, row in self.pool:
            data, mark = self.pool.belief_bytes(player), self.marks.get(player)
            if written_by is WrittenBy.CLOSED:
                mark = None
            applied = written_by is WrittenBy.APPLIED
            now = Published(float(row["mu"]), float(row["sigma"]))
            # A rebuild knows of an unannounced belief by what was published alone.
            waits = mark is not None and mark.unannounced and (applied or mark.published != now)
            if mark is not None and written_by is WrittenBy.FROM_PARTS and not waits:
                data = _written(mark, last=mark.offset)
            elif mark is not None and (applied or waits):
                last = mark.offset if applied else int(row["last"])
                data = _written(mark, last=last, published=mark.published)
            elif not row["rounds"]:
                continue
            found[self.ladder, player] = data
        return found


def _rate(pool: Pool, standings: OneRound, rated: Rated) -> list[float] | None:
    """Rate one round; returns the performances, or None if it changes nothing."""
    pool.follow(rated.rating)
    found = pool.rate(standings, rated.record.offset)
    return None if found is None else found[1][:, 0].tolist()


def _seed(pool: Pool, seed: Seed) -> Ints:
    """Apply one seed or reset; returns the indices of the players whom it changes."""
    pool.follow(seed.rating)
    return pool.seed(seed).chosen


def _offset(each: Rated | Seed) -> int:
    return each.offset if isinstance(each, Seed) else each.record.offset


def _written(mark: Mark, *, last: int, published: Published | None = None) -> bytes:
    """The record that a correction left."""
    beliefs = belief_record.decode([mark.data], 0, 0.0, 1.0)
    beliefs.header["last"] = last
    if published is not None:
        beliefs.header["previous_mu"], beliefs.header["previous_sigma"] = published
        beliefs.header["untold"] = mark.unannounced
    return belief_record.encode(beliefs)[0]
