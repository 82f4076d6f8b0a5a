"""The rules that a valid round obeys, each written once, over the columns of many rounds.

A round is rejected with the code of the first rule in RULES that it breaks. `LadderTerms` has the
limits of each ladder's rounds, and `DuplicateWindow` has the round ids that were read before.

The result is a pure function of the record (its bytes, headers, partition, offset and the time when
the log received it) and the ladders' configuration. Codes are those of the event contract; each
message says where the mistake is.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_rater.columns import strings
from stream_rater.columns.arrays import Flags, Floats, Hashes, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.ranges import bounds
from stream_rater.columns.sharding import ANYWHERE, partition_of
from stream_rater.columns.strings import are_distinct
from stream_rater.config.ladders import Ladders
from stream_rater.contract import events
from stream_rater.contract.events import MAX_ID_BYTES, MAX_RANK
from stream_rater.rating.model import DID_NOT_FINISH
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds import batch

OUT_OF_RANGE, NO_RANK = -1, -2
"""The places of entries whose rank is out of range, and of entries with neither rank nor dnf."""

MIN_ENTRIES = 2
LEAST_SHARE = 1e-6  # The smallest share. The variance of a member's evidence is divided by share^2.
LEAST_CEILING = -1e9  # The lowest performance ceiling: the arithmetic has no room below.
EARLIEST = events.parse_time("1900-01-01T00:00:00Z")
"""The earliest time of completion, Unix seconds. An earlier one must be a mistake."""
SHORT_ID = MAX_ID_BYTES // 4  # An id of so many characters is never longer than MAX_ID_BYTES.
MOST_LADDERS = 10_000  # The most ladders in the cache: with a template, any name is one.
QUOTE_IT = "ids are texts, so quote it"  # The advice in a message about an id that is a number.
NO_ROUND = np.empty(0, np.bool_)
"""What a rule returns if it is quick to see that no round breaks it."""


class Invalid(Exception):
    """A record is rejected. The message has the place of the mistake."""

    def __init__(self, code: str, message: str, ladder: str = "", round_id: str = "") -> None:
        """`code`: one of the error codes in `contract.errors.REJECTIONS`."""
        super().__init__(code, message)  # so that it can be sent to another process
        self.code = code
        self.set_round(ladder, round_id)

    def set_round(self, ladder: str, round_id: str) -> None:
        """The round's ladder and id, as far as they could be read, cut to the length of ids."""
        self.ladder, self.round_id = ladder[:MAX_ID_BYTES], round_id[:MAX_ID_BYTES]

    def __str__(self) -> str:
        return str(self.args[1])


_NUMBER = re.compile(
    r"Expected `str( \| null)?`, got `(int|float)` - at "
    r"`\$.*\.(round_id|ladder|players?|into|team|fixed)(\[[\d.]*\])?`"
)


def with_cure(mistake: str) -> str:
    """msgspec's text about a value of the wrong type, with advice on a number in place of an id."""
    return f"{mistake}: {QUOTE_IT}" if _NUMBER.search(mistake) else mistake


class RoundBounds(NamedTuple):
    """The limits of rounds by the configuration of their ladders, as (R,) columns."""

    named: Floats  # Whether the ladder's id is a valid id.
    known: Floats  # Whether the ladder is configured; if it is not, the limits are 0.
    most_entries: Floats
    most_weight: Floats
    most_ahead_s: Floats
    strict: Floats  # Whether unknown fields are rejected.
    seats: Floats  # Whether the ladder uses the seats of entries.
    scores: Floats  # Whether the ladder uses the scores of entries.
    home: Floats  # The partition to which the ladder's rounds belong, or ANYWHERE.


class Candidates(NamedTuple):
    """R rounds as they were reported, with all inputs of the rules."""

    rounds: batch.RoundBatch
    """The rounds, with entries in the order of their message. A place may be OUT_OF_RANGE or
    NO_RANK, a time may be UNUSUAL, and an entry may have no players."""
    bounds: RoundBounds
    received_s: Floats  # (R,) when the log received the round, Unix seconds.
    partition: Ints  # (R,) the partition in which the round was found.
    partitions: int  # The number of partitions of the topic, or ANYWHERE.
    mistake_in: Callable[[str, int], str]
    """A function that describes the first mistake in the `shares`, the `seat` or the `score` of a
    round, or the first `unknown` field, with its place. The round must have one."""


def rounds_with(broken: npt.ArrayLike, sizes: Ints) -> Flags:
    """(R,) whether each round has a broken row. `sizes` has the number of rows of each round."""
    found, broken = np.zeros(len(sizes), np.bool_), np.asarray(broken)
    if broken.any():
        found[np.searchsorted(np.cumsum(sizes), np.flatnonzero(broken), "right")] = True
    return found


class ValidationRule(NamedTuple):
    """One rule of validity."""

    code: str
    broken: Callable[[Candidates], Flags]
    """A function that returns (R,) whether each round breaks the rule, or NO_ROUND."""
    message: Callable[[Candidates, int], str]
    """A function that describes the mistake in a round that breaks the rule."""


# --- ids and the ladder --------------------------------------------------------------------------


def id_mistake(value: str) -> str:
    """The reason why a text is not a valid id; empty if it is one."""
    if not value:
        return "empty"
    if len(value) > SHORT_ID and len(value.encode()) > MAX_ID_BYTES:
        return f"over {MAX_ID_BYTES} bytes"
    return ""


def _no_round_id(c: Candidates) -> Flags:
    ids = [head.round_id for head in c.rounds.heads]
    sizes = np.array([len(each) for each in ids])
    broken: Flags = (sizes == 0) | (sizes > SHORT_ID)
    for i in np.flatnonzero(broken).tolist():
        broken[i] = id_mistake(ids[i]) != ""
    return broken


def _round_id_message(c: Candidates, i: int) -> str:
    return f"round_id: {id_mistake(c.rounds.heads[i].round_id)}"


def _partition_message(c: Candidates, i: int) -> str:
    ladder, home = c.rounds.heads[i].ladder, int(c.bounds.home[i])
    return partition_mistake(ladder, home, "one", int(c.partition[i]))


def partition_mistake(ladder: str, home: int, what: str, partition: int) -> str:
    """The reason for rejecting a record of a ladder in another partition than the ladder's."""
    return (
        f"ladder {ladder!r} has its rounds in partition {home}, this {what} is in {partition}: the "
        "record's key must be the ladder, and a producer of librdkafka needs "
        "partitioner=murmur2_random"
    )


# --- fields around the list ----------------------------------------------------------------------


def _ahead_message(c: Candidates, i: int) -> str:
    return f"completed_at: over {int(c.bounds.most_ahead_s[i])} s ahead of its arrival"


def _weight_message(c: Candidates, i: int) -> str:
    return f"weight: {float(c.rounds.weight[i])} is not in (0, {c.bounds.most_weight[i]:g}]"


def _ceiling_message(c: Candidates, i: int) -> str:
    return f"performance_ceiling: {float(c.rounds.ceiling[i])} is not over {LEAST_CEILING:g}"


def _many_message(c: Candidates, i: int) -> str:
    return f"standings: {c.rounds.entries[i]}, the limit is {int(c.bounds.most_entries[i])}"


# --- entries -------------------------------------------------------------------------------------


def _all_within(values: npt.NDArray[Any], least: float, most: float) -> bool:
    """Whether all values are from `least` to `most`. Nearly all rounds pass this quick check."""
    return len(values) == 0 or bool(values.min() >= least and values.max() <= most)


def _first(broken: Flags, sizes: Ints, i: int) -> tuple[int, int]:
    """The first broken row of round i: its number in the round, and its number among all rows."""
    start = int(sizes[:i].sum())
    number = int(np.argmax(broken[start : start + int(sizes[i])]))
    return number, start + number


def _lacks_place(c: Candidates) -> Flags:
    return np.less(c.rounds.place, DID_NOT_FINISH)


def _place_message(c: Candidates, i: int) -> str:
    number, at = _first(_lacks_place(c), c.rounds.entries, i)
    if c.rounds.place[at] == NO_RANK:
        return f"standings[{number}]: neither rank nor dnf"
    return f"standings[{number}].rank: not in 1..{MAX_RANK}"


def _no_players(c: Candidates) -> Flags:
    return np.equal(c.rounds.members, 0)


def _no_players_message(c: Candidates, i: int) -> str:
    number, _ = _first(_no_players(c), c.rounds.entries, i)
    return f"standings[{number}]: needs a player or a team, one of them"


def _bad_share(c: Candidates) -> Flags:
    """(P,) whether each share is out of range. It is NaN, and so bad, if their number is wrong."""
    share = c.rounds.share
    good: Flags = (share >= LEAST_SHARE) & (share <= 1.0)
    return ~good


def _bad_shares(c: Candidates) -> Flags:
    bad = False if _all_within(c.rounds.share, LEAST_SHARE, 1.0) else _bad_share(c)
    return rounds_with(bad, c.rounds.sizes)


def _bad_values(name: str, bad: float, c: Candidates) -> Flags:
    """(R,) whether a round's ladder uses `name`, a seat or a score, and the round has a bad one."""
    column, used = getattr(c.rounds, name), getattr(c.bounds, f"{name}s")
    if not len(column) or not used.any():
        return NO_ROUND
    broken = rounds_with(column == bad, c.rounds.entries)
    broken &= used != 0
    return broken


# --- players -------------------------------------------------------------------------------------


def _no_player(c: Candidates) -> Flags:
    size = c.rounds.names.ends - c.rounds.names.starts
    bad = False if _all_within(size, 1, MAX_ID_BYTES) else (size == 0) | (size > MAX_ID_BYTES)
    return rounds_with(bad, c.rounds.sizes)


def _players_by_place(c: Candidates, i: int) -> list[str]:
    """The players of round i, in order of place. Each of its entries must have a place."""
    rounds = c.rounds
    starts, first = bounds(rounds.members), int(rounds.entries[:i].sum())
    place = rounds.place[first : first + int(rounds.entries[i])]
    order = first + batch.by_place(place)
    return [name for e in order for name in rounds.names.slice(starts[e], starts[e + 1]).texts()]


def _player_message(c: Candidates, i: int) -> str:
    player = next(each for each in _players_by_place(c, i) if id_mistake(each))
    return f"player {player[:MAX_ID_BYTES]!r}: {id_mistake(player)}"


@kernel
def _are_distinct(sizes: Ints, hashes: Hashes) -> Flags:
    """(R,) whether no two players of a round have the same hash."""
    found = np.empty(len(sizes), np.bool_)
    first = 0
    for r in range(len(sizes)):
        last = first + sizes[r]
        found[r] = are_distinct(hashes[first:last])
        first = last
    return found


def _repeated_player(c: Candidates) -> Flags:
    broken = ~_are_distinct(c.rounds.sizes, c.rounds.names.hashes)
    for i in np.flatnonzero(broken).tolist():
        start, size = int(c.rounds.sizes[:i].sum()), int(c.rounds.sizes[i])
        broken[i] = len(set(c.rounds.names.slice(start, start + size).texts())) < size
    return broken


def _repeated_player_message(c: Candidates, i: int) -> str:
    player = Counter(_players_by_place(c, i)).most_common(1)[0][0]
    return f"player {player!r} stands in the round twice"


RULES = tuple(ValidationRule(*rule) for rule in (
    ("bad-id", _no_round_id, _round_id_message),
    ("bad-id", lambda c: c.bounds.named == 0,
     lambda c, i: f"ladder: {id_mistake(c.rounds.heads[i].ladder)}"),
    ("unknown-ladder", lambda c: c.bounds.known == 0,
     lambda c, i: f"ladder {c.rounds.heads[i].ladder!r} is not configured"),
    ("malformed", lambda c: c.rounds.unknown & (c.bounds.strict != 0),
     lambda c, i: c.mistake_in("unknown", i)),
    ("bad-time", lambda c: c.rounds.time == strings.UNUSUAL,
     lambda c, i: f"completed_at: {batch.time_mistake(c.rounds.heads[i].completed_at)}"),
    ("bad-time", lambda c: c.rounds.time < EARLIEST,
     lambda c, i: "completed_at: before the year 1900"),
    ("bad-time", lambda c: c.rounds.time > c.received_s + c.bounds.most_ahead_s, _ahead_message),
    ("bad-weight",
     lambda c: ~((c.rounds.weight > 0.0) & (c.rounds.weight <= c.bounds.most_weight)),
     _weight_message),
    ("malformed", lambda c: ~(c.rounds.ceiling >= LEAST_CEILING), _ceiling_message),
    ("too-few-entries", lambda c: c.rounds.entries < MIN_ENTRIES,
     lambda c, i: f"standings: {c.rounds.entries[i]}, a round needs {MIN_ENTRIES}"),
    ("too-many-entries", lambda c: c.rounds.entries > c.bounds.most_entries, _many_message),
    ("bad-rank", lambda c: rounds_with(_lacks_place(c), c.rounds.entries), _place_message),
    ("malformed", lambda c: rounds_with(_no_players(c), c.rounds.entries), _no_players_message),
    ("bad-shares", _bad_shares, lambda c, i: c.mistake_in("shares", i)),
    ("bad-seat", partial(_bad_values, "seat", batch.BAD_SEAT),
     lambda c, i: c.mistake_in("seat", i)),
    ("bad-score", partial(_bad_values, "score", batch.BAD_SCORE),
     lambda c, i: c.mistake_in("score", i)),
    ("bad-id", _no_player, _player_message),
    ("duplicate-player", _repeated_player, _repeated_player_message),
    ("wrong-partition", lambda c: (c.partition != c.bounds.home) & (c.partitions != ANYWHERE),
     _partition_message),
))  # fmt: skip
"""The rules in order of precedence, which is part of the event contract. Records that cannot be
decompressed or are too large (`too-large`), `too-deep` ones and values of the wrong type are
rejected before a round has columns (`decoder`, `fallback`). `duplicate-round` is found after these
rules (`DuplicateWindow`)."""


def check(candidates: Candidates) -> list[Invalid | None]:
    """For each round, the reason why it is rejected; None if it is valid."""
    heads = candidates.rounds.heads
    rejections: list[Invalid | None] = [None] * len(heads)
    for rule in RULES:
        broken = rule.broken(candidates)
        if not broken.any():
            continue
        for i in np.flatnonzero(broken).tolist():
            if rejections[i] is None:
                text, of = rule.message(candidates, i), heads[i]
                rejections[i] = Invalid(rule.code, text, of.ladder, of.round_id)
    return rejections


# --- limits by ladder ----------------------------------------------------------------------------


class _Terms(NamedTuple):
    """The rating configuration and the limits of a ladder's rounds."""

    is_steady: bool  # Whether the terms hold at every offset.
    config_index: int  # The index of the rating configuration; -1 if the ladder is unknown.
    bounds: tuple[float, ...]  # The values of RoundBounds.


class LadderTerms:
    """The rating configurations and limits of rounds, by ladder and offset, in a topic."""

    def __init__(self, ladders: Ladders, partitions: int) -> None:
        self.ratings: list[RatingConfig] = []
        """The rating configurations of the ladders looked up so far."""
        self._ladders, self._partitions = ladders, partitions
        self._indices: dict[int, int] = {}
        self._cache: dict[str, _Terms] = {}

    def of(self, heads: Sequence[events.Round], offsets: Ints) -> tuple[Ints, RoundBounds]:
        """(R,) the index of each round's rating configuration, -1 where the ladder is unknown; and
        the rounds' bounds. `offsets` are those at which the rounds were read."""
        ladders = [head.ladder for head in heads]
        which = {ladder: i for i, ladder in enumerate(dict.fromkeys(ladders))}
        terms = [self._cached_terms(ladder) for ladder in which]
        table = np.array([(*each[:2], *each.bounds) for each in terms], np.float64)
        if len(which) == 1:
            table = np.repeat(table, len(ladders), axis=0)
        else:
            table = table[[*map(which.__getitem__, ladders)]]
        for i in np.flatnonzero(table[:, 0] == 0).tolist():
            terms_here = self._look_up(ladders[i], int(offsets[i]))
            table[i] = (*terms_here[:2], *terms_here.bounds)
        columns = table.T
        return columns[1].astype(np.int64), RoundBounds(*columns[2:])

    def _cached_terms(self, ladder: str) -> _Terms:
        """The terms of a ladder, from the cache; not steady if they depend on the offset."""
        terms = self._cache.get(ladder)
        if terms is None:
            named = self._ladders.ladders.get(ladder)
            is_steady = named is None or named.offsets == (0,)
            terms = self._look_up(ladder, 0)._replace(is_steady=is_steady)
            if len(ladder) <= MAX_ID_BYTES:
                if len(self._cache) == MOST_LADDERS:
                    self._cache.clear()
                self._cache[ladder] = terms
        return terms

    def _look_up(self, ladder: str, offset: int) -> _Terms:
        terms = self._ladders.find(ladder, offset)
        if terms is None or id_mistake(ladder):
            return _Terms(True, -1, (not id_mistake(ladder), *[0] * 7, ANYWHERE))
        limits, rating = terms.limits, terms.rating
        home = partition_of(ladder, self._partitions) if self._partitions else ANYWHERE
        return _Terms(True, self._index_of(rating), (
            True, True, limits.max_entries, limits.max_weight, limits.max_skew_s,
            limits.unknown_fields == "reject", bool(rating.seats), batch.uses_scores(rating),
            home,
        ))  # fmt: skip

    def _index_of(self, rating: RatingConfig) -> int:
        number = self._indices.setdefault(id(rating), len(self.ratings))
        if number == len(self.ratings):
            self.ratings.append(rating)
        return number


# --- duplicates ----------------------------------------------------------------------------------


class DuplicateWindow:
    """The round ids of the last W offsets of one partition, whose records come in order.

    A duplicate (protocol step 2) has the ladder and round id of a valid record among the W offsets
    before it, in the same partition. That earlier record may itself be a duplicate; otherwise the
    result for a record would depend on the whole log. So repetitions of a round are not rated while
    each follows the previous one within W offsets.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._began = 0
        """The offset at which `_young` began."""
        self._young: dict[str, dict[str, int]] = {}
        """The latest offset of each valid round since then, by ladder and round id."""
        self._old: dict[str, dict[str, int]] = {}
        """The same of a span of more than W offsets before, so that none is forgotten too early."""

    def check(self, offset: int, ladder: str, round_id: str) -> None:
        """Remember a valid round. Raises Invalid if it is a duplicate."""
        self._forget(offset)
        young, old = self._young.setdefault(ladder, {}), self._old.get(ladder, {})
        earlier = young.get(round_id, old.get(round_id, -1))
        young[round_id] = offset
        if earlier >= max(offset - self._window, 0):
            text = f"round_id {round_id!r} stands at offset {earlier}"
            raise Invalid("duplicate-round", text, ladder, round_id)

    def check_all(
        self, offsets: Sequence[int], ladders: Sequence[str], round_ids: Sequence[str]
    ) -> dict[int, Invalid]:
        """Remember R valid rounds, by offset. Returns the duplicates by their indices."""
        if not offsets or self._are_new(offsets, ladders, round_ids):
            return {}
        found = {}
        for i, each in enumerate(zip(offsets, ladders, round_ids, strict=True)):
            try:
                self.check(*each)
            except Invalid as duplicate:
                found[i] = duplicate
        return found

    def _are_new(
        self, offsets: Sequence[int], ladders: Sequence[str], round_ids: Sequence[str]
    ) -> bool:
        """Remember valid rounds if all of their ids are new. Returns whether this is so. If it is
        not, nothing is remembered. It takes a fifth of the time of checking each round."""
        self._forget(offsets[0])
        new: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for offset, ladder, round_id in zip(offsets, ladders, round_ids, strict=True):
            new[ladder][round_id] = offset
        if sum(map(len, new.values())) < len(offsets):
            return False
        for ladder, own in new.items():
            for known in (self._young, self._old):
                if ladder in known and not known[ladder].keys().isdisjoint(own):
                    return False
        for ladder, own in new.items():
            self._young.setdefault(ladder, {}).update(own)
        return True

    def _forget(self, offset: int) -> None:
        """Forget rounds of which none is among the W offsets before this one."""
        if offset - self._began > self._window:
            self._old, self._young, self._began = self._young, {}, offset
