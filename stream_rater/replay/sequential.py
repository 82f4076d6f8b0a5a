"""Runs rounds through the sequential replay. `rate` and `verify` use this."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.ranges import bounds, spread
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladder, Ladders
from stream_rater.contract.corrections import EVENT_TYPE, kind_of_line
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import Season
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.pool import Folded, Pool
from stream_rater.replay.turns import turns_of
from stream_rater.replay.verdicts import Verdicts
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.corrections import kind_of, places_of
from stream_rater.rounds.decoder import DecodedRounds, RoundDecoder
from stream_rater.rounds.validation import DuplicateWindow, Invalid

BATCH_BYTES = 2**18
"""Records are decoded together while they have no more bytes than this."""


class Judge:
    """Judges all records of a log, each by the records before it in its partition. The log has
    `partitions` partitions."""

    def __init__(self, ladders: Ladders, window: int, partitions: int = ANYWHERE) -> None:
        self.round_decoder = RoundDecoder(ladders, partitions)
        self._window = window
        self._duplicates: dict[int, DuplicateWindow] = {}
        """By partition."""

    def decode(self, records: Sequence[Record]) -> DecodedRounds:
        """The rounds in these records, and why the others are refused: what the decoder says, and
        which rounds are duplicates."""
        decoded = self.round_decoder.decode(records)
        new, i = list[int](), 0
        for number, (record, refusal) in enumerate(zip(records, decoded.refusals, strict=True)):
            if refusal is not None:
                continue
            head = decoded.rounds.heads[i]
            try:
                self._of(record.partition).check(record.offset, head.ladder, head.round_id)
            except Invalid as duplicate:
                decoded.refusals[number] = duplicate
            else:
                new.append(i)
            i += 1
        if len(new) == i:
            return decoded
        chosen = np.array(new, np.int64)
        return decoded._replace(
            rounds=decoded.rounds.take(chosen),
            rule=decoded.rule[chosen],
            unknown=decoded.unknown[chosen],
        )

    def _of(self, partition: int) -> DuplicateWindow:
        window = self._duplicates.get(partition)
        if window is None:
            window = self._duplicates[partition] = DuplicateWindow(self._window)
        return window


class Rated(NamedTuple):
    """Rounds of one ladder, rated by the same parameters, and what they did to its pool."""

    chosen: Ints
    """(R,) their indices among the batch's valid rounds, in the order in which they were rated."""
    rounds: RoundBatch
    """(R,) in this order."""
    pool: Pool
    """The ladder's."""
    rule: RatingRule
    """By which the pool rated them."""
    rows: Ints
    """(P,) the players' rows in the pool."""
    folded: Folded
    """What each player was before and after."""


class RatedBatch(NamedTuple):
    """Some records, and what their rounds did to the pools."""

    records: Sequence[Record]
    decoded: DecodedRounds
    rated: list[Rated]
    """Without the rounds that change nothing."""
    corrections: Sequence[tuple[Record, Invalid | None]] = ()
    """The corrections among the records, which `records` is without, and why each is refused."""


class Unjudged(Exception):
    """The log has a correction, and the replay was not told the verdicts on corrections."""


class Replay:
    """Replays a log in its order, edited by its corrections. The state of every ladder's pool after
    it is the truth that the service must match."""

    def __init__(
        self, ladders: Ladders, window: int, partitions: int = ANYWHERE,
        verdicts: Verdicts | None = None, judge: Judge | None = None,
    ) -> None:  # fmt: skip
        """`verdicts`: those on the log's corrections (`corrected.judged`). Without them a log with
        corrections ends in Unjudged. `judge`: whoever decodes the log, if it is decoded for several
        replays at once."""
        self._judge = judge or Judge(ladders, window, partitions)
        self._verdicts = verdicts
        edits = verdicts.edits if verdicts is not None else {}
        self._edited_ladders = {name: each for name, each in edits.items() if each.change_rounds}
        self.pools: dict[str, Pool] = {}
        """The pool of each ladder."""
        self._seasons: dict[str, tuple[Season, ...]] = {}
        """By ladder, the seasons that have started."""

    def start_season(self, ladder: str, season: Season) -> None:
        """Start a season on a ladder: it holds for all rounds fed later."""
        self._seasons[ladder] = (*self._seasons.get(ladder, ()), season)
        if ladder in self.pools:
            self.pools[ladder].start_season(season)

    def go_on(self, ladder: str, pool: Pool) -> None:
        """Go on from what a ladder's earlier rounds have made of its players."""
        self.pools[ladder] = pool
        self._seasons[ladder] = pool.rule.seasons

    def run(self, records: Iterable[Record]) -> Iterator[RatedBatch]:
        """Rate the rounds in records of `round-completed`. Yields them some at a time, once they
        are rated. Raises Unjudged."""
        for some in batches_of(records):
            yield self.feed(some)

    def feed(self, records: Sequence[Record]) -> RatedBatch:
        """Rate the rounds in these records, by all corrections of the log. A record that starts a
        season must not follow a round here (`batches_of`). Raises Unjudged."""
        records, corrections = self._parted(records)
        decoded = self._judge.decode(records)
        return RatedBatch(records, decoded, self.rate(records, decoded), corrections)

    def rate(
        self, records: Sequence[Record], decoded: DecodedRounds, only: str | None = None
    ) -> list[Rated]:
        """Rate the rounds that were decoded from these records: those of the ladder `only`, if it
        is given. There are no corrections among them."""
        offsets = np.array([each.offset for each in decoded.valid(records)], np.int64)
        teach = self._judge.round_decoder.informative(decoded.rounds, decoded.rule).tolist()
        together: dict[tuple[str, int], list[int]] = {}
        heads, edited = decoded.rounds.heads, self._edited_ladders
        for i, rule in enumerate(decoded.rule.tolist()):
            ladder = heads[i].ladder
            if (teach[i] or ladder in edited) and only in (None, ladder):
                together.setdefault((ladder, rule), []).append(i)
        rated = [
            self._rate(ladder, rule, decoded.rounds, np.array(chosen), offsets)
            for (ladder, rule), chosen in together.items()
        ]
        return [each for each in rated if each is not None]

    def _parted(
        self, records: Sequence[Record]
    ) -> tuple[Sequence[Record], list[tuple[Record, Invalid | None]]]:
        """The rounds among these records; and the corrections, with why each is refused."""
        places = places_of(records)
        if not places:
            return records, []
        if self._verdicts is None:
            raise Unjudged
        left = sorted(set(range(len(records))).difference(places))
        corrections = [(records[i], self._verdicts.on(records[i])) for i in places]
        for record, _ in corrections:
            self.pass_by(record)
        return [records[i] for i in left], corrections

    def pass_by(self, record: Record) -> None:
        """Start the season that a record starts, if it does."""
        starts = self._verdicts.starts if self._verdicts is not None else {}
        if (found := starts.get((record.partition, record.offset))) is not None:
            self.start_season(*found)

    def _rate(
        self, ladder: str, rule: int, rounds: RoundBatch, chosen: Ints, offsets: Ints
    ) -> Rated | None:
        """Rate the rounds `chosen`, which are a ladder's, by the parameters of this number; None if
        nothing is left to rate."""
        own = rounds if len(chosen) == len(rounds) else rounds.take(chosen)
        if ladder in self._edited_ladders:
            own, counts = self._edited_ladders[ladder].apply(own, offsets[chosen])
            counts &= self._judge.round_decoder.informative(own, np.full(len(own), rule))
            left = np.flatnonzero(counts)
            if not len(left):
                return None
            own, chosen = own.take(left), chosen[left]
        rating = self._judge.round_decoder.ratings[rule]
        pool = self.pools.get(ladder)
        if pool is None:
            started = self._seasons.get(ladder, ())
            pool = self.pools[ladder] = Pool(Ladder(rating=rating), started)
        pool.follow(rating)
        rows = pool.rows(own.names)
        turns = turns_of(bounds(own.sizes), rows, len(pool))
        if len(turns.bounds) > 2:  # a single turn keeps the order
            rows = rows[spread(bounds(own.sizes)[turns.order], own.sizes[turns.order])]
            own, chosen = own.take(turns.order), chosen[turns.order]
        folded = pool.rate_rows(own, rows, turns.bounds, offsets[chosen])
        return Rated(chosen, own, pool, pool.rule, rows, folded)


def records_of(lines: Iterable[bytes], first: int = 0) -> Iterator[Record]:
    """Yield each line that is not blank as a record. Its offset is its line number from `first` on,
    its time is never too late, and its field `event_type` stands for the header."""
    for number, line in enumerate(lines, first):
        if line.strip():
            kind = kind_of_line(line)
            headers = ((EVENT_TYPE, kind.encode()),) if kind else ()
            yield Record(0, number, line, headers, received_s=math.inf)


def batches_of(
    records: Iterable[Record], most_bytes: int = BATCH_BYTES, *, mixed: bool = False
) -> Iterator[list[Record]]:
    """Yield records that follow each other, together while they have no more bytes than that. A
    correction begins a batch, unless they may be `mixed`."""
    some, size = list[Record](), 0
    for record in records:
        own = len(record.value or b"")
        begins = not mixed and record.headers and kind_of(record)
        if some and (size + own > most_bytes or begins):
            yield some
            some, size = [], 0
        some.append(record)
        size += own
    if some:
        yield some
