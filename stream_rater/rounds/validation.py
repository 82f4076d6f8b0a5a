"""What is a valid round: the rules, each written once, over the columns of many rounds.

A round is refused by the first rule in RULES that it breaks. The verdict is a pure function of the
record (its bytes, headers, partition, offset and the time the log received it) and the ladders'
configuration. Codes are those of the event contract; each message says where the mistake is.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_rater.columns import timestamps
from stream_rater.columns.arrays import Flags, Hashes, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.ranges import bounds
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.columns.strings import are_distinct
from stream_rater.contract import events
from stream_rater.contract.errors import REJECTIONS
from stream_rater.contract.events import MAX_ID_BYTES, MAX_RANK
from stream_rater.rating.model import DID_NOT_FINISH
from stream_rater.rounds.order import by_place
from stream_rater.rounds.reported import NO_RANK, Candidates, rounds_with, time_mistake

MIN_ENTRIES = 2
LEAST_SHARE = 1e-6
"""A member's evidence has a variance over share^2."""
LEAST_CEILING = -1e9
"""A lower cap would not leave the arithmetic room; no ladder's ratings reach it."""
EARLIEST = events.parse_time("1900-01-01T00:00:00Z")
"""Rounds before this are absurd."""
SHORT_ID = MAX_ID_BYTES // 4
"""Characters, which are never over 128 bytes."""

QUOTE_IT = "ids are texts, so quote it"
"""What to do about an id that is a number."""

CODES = tuple(REJECTIONS)
"""The error codes of rejected records."""


class Invalid(Exception):
    """A round that cannot be rated: `code` from the contract, and a message with the place."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)  # both, so that it can be sent to another process
        self.code = code
        self.ladder = self.round_id = ""
        """Whose round it is, as far as its record could be read, and no longer than ids are."""

    def tell(self, ladder: str, round_id: str) -> None:
        """Whose round it is."""
        self.ladder, self.round_id = ladder[:MAX_ID_BYTES], round_id[:MAX_ID_BYTES]

    def __str__(self) -> str:
        return str(self.args[1])


_NUMBER = re.compile(
    r"Expected `str( \| null)?`, got `(int|float)` - at "
    r"`\$.*\.(round_id|ladder|players?|into|team|fixed)(\[[\d.]*\])?`"
)


def with_cure(mistake: str) -> str:
    """msgspec's text on a value of another type; on a number for an id, with what to do."""
    return f"{mistake}: {QUOTE_IT}" if _NUMBER.search(mistake) else mistake


class Rule(NamedTuple):
    """One rule of validity."""

    code: str
    broken: Callable[[Candidates], Flags]
    """(R,) which rounds break it."""
    message: Callable[[Candidates, int], str]
    """What is wrong with a round that does."""


# --- ids and the ladder --------------------------------------------------------------------------


def id_mistake(value: str) -> str:
    """Why this is no id; empty if it is one."""
    if not value:
        return "empty"
    if len(value) > SHORT_ID and len(value.encode()) > MAX_ID_BYTES:
        return f"over {MAX_ID_BYTES} bytes"
    return ""


def _no_round_id(c: Candidates) -> Flags:
    ids = [head.round_id for head in c.reported.heads]
    sizes = np.array([len(each) for each in ids])
    broken: Flags = (sizes == 0) | (sizes > SHORT_ID)
    for i in np.flatnonzero(broken).tolist():
        broken[i] = id_mistake(ids[i]) != ""
    return broken


def _round_id_message(c: Candidates, i: int) -> str:
    return f"round_id: {id_mistake(c.reported.heads[i].round_id)}"


def _ladder_message(c: Candidates, i: int) -> str:
    return f"ladder: {id_mistake(c.reported.heads[i].ladder)}"


def _unknown_message(c: Candidates, i: int) -> str:
    return f"ladder {c.reported.heads[i].ladder!r} is not configured"


def _in_another_partition(c: Candidates) -> Flags:
    broken: Flags = c.partition != c.bounds.home
    return broken & (c.partitions != ANYWHERE)


def _partition_message(c: Candidates, i: int) -> str:
    return (
        f"ladder {c.reported.heads[i].ladder!r} has its rounds in partition "
        f"{int(c.bounds.home[i])}, this one is in {c.partition[i]}: the record's key must be the "
        "ladder, and a producer of librdkafka needs partitioner=murmur2_random"
    )


# --- fields around the list ----------------------------------------------------------------------


def _time_message(c: Candidates, i: int) -> str:
    return f"completed_at: {time_mistake(c.reported.heads[i].completed_at)}"


def _ahead_message(c: Candidates, i: int) -> str:
    return f"completed_at: over {int(c.bounds.most_ahead_s[i])} s ahead of its arrival"


def _weight_message(c: Candidates, i: int) -> str:
    return f"weight: {float(c.weight[i])} is not in (0, {c.bounds.most_weight[i]:g}]"


def _ceiling_message(c: Candidates, i: int) -> str:
    return f"performance_ceiling: {float(c.ceiling[i])} is not over {LEAST_CEILING:g}"


def _few_message(c: Candidates, i: int) -> str:
    return f"standings: {c.reported.entries[i]}, a round needs {MIN_ENTRIES}"


def _many_message(c: Candidates, i: int) -> str:
    return f"standings: {c.reported.entries[i]}, the limit is {int(c.bounds.most_entries[i])}"


# --- entries -------------------------------------------------------------------------------------


def _all_within(values: npt.NDArray[Any], least: float, most: float) -> bool:
    """Whether no value is smaller or greater, or no number: the quick answer for nearly all."""
    return len(values) == 0 or bool(values.min() >= least and values.max() <= most)


def _none(c: Candidates) -> Flags:
    """(R,) no round."""
    return np.zeros(len(c.reported.heads), np.bool_)


def _first(broken: Flags, sizes: Ints, i: int) -> tuple[int, int]:
    """The first broken row of round i: its number in the round, and among all."""
    start = int(sizes[:i].sum())
    number = int(np.argmax(broken[start : start + int(sizes[i])]))
    return number, start + number


def _no_place(c: Candidates) -> Flags:
    """(E,) entries without a place."""
    broken: Flags = c.reported.place < DID_NOT_FINISH
    return broken


def _place_message(c: Candidates, i: int) -> str:
    number, at = _first(_no_place(c), c.reported.entries, i)
    if c.reported.place[at] == NO_RANK:
        return f"standings[{number}]: neither rank nor dnf"
    return f"standings[{number}].rank: not in 1..{MAX_RANK}"


def _nobody(c: Candidates) -> Flags:
    """(E,) entries without players."""
    broken: Flags = c.reported.members == 0
    return broken


def _nobody_message(c: Candidates, i: int) -> str:
    number, _ = _first(_nobody(c), c.reported.entries, i)
    return f"standings[{number}]: needs a player or a team, one of them"


def _bad_share(c: Candidates) -> Flags:
    """(P,) shares that are none."""
    share = c.reported.share
    good: Flags = (share >= LEAST_SHARE) & (share <= 1.0)
    return ~good


def _bad_entry_shares(c: Candidates) -> Flags:
    """(E,) entries with shares that are none, or too few or too many."""
    members = c.reported.members
    broken: Flags = c.reported.shares != members
    return broken | rounds_with(_bad_share(c), members)


def _bad_shares(c: Candidates) -> Flags:
    reported = c.reported
    if reported.shares is reported.members and _all_within(reported.share, LEAST_SHARE, 1.0):
        return _none(c)
    return rounds_with(_bad_entry_shares(c), reported.entries)


def _shares_message(c: Candidates, i: int) -> str:
    number, at = _first(_bad_entry_shares(c), c.reported.entries, i)
    count, size = c.reported.shares[at], c.reported.members[at]
    if count != size:
        return f"standings[{number}].shares: {count} for {size} players"
    _, player = _first(_bad_share(c), c.reported.members, at)
    share = float(c.reported.share[player])
    return f"standings[{number}].shares: {share} is not in [{LEAST_SHARE}, 1]"


# --- players -------------------------------------------------------------------------------------


def _no_player(c: Candidates) -> Flags:
    size = c.reported.names.ends - c.reported.names.starts
    if _all_within(size, 1, MAX_ID_BYTES):
        return _none(c)
    return rounds_with((size == 0) | (size > MAX_ID_BYTES), c.reported.sizes)


def _by_place(c: Candidates, i: int) -> list[str]:
    """The players of round i, of which each entry has a place, in order of place."""
    reported = c.reported
    starts, first = bounds(reported.members), int(reported.entries[:i].sum())
    place = reported.place[first : first + int(reported.entries[i])]
    order = first + by_place(place)
    return [name for e in order for name in reported.names.slice(starts[e], starts[e + 1]).texts()]


def _player_message(c: Candidates, i: int) -> str:
    player = next(each for each in _by_place(c, i) if id_mistake(each))
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


def _twice(c: Candidates) -> Flags:
    broken = ~_are_distinct(c.reported.sizes, c.reported.names.hashes)
    for i in np.flatnonzero(broken).tolist():
        start, size = int(c.reported.sizes[:i].sum()), int(c.reported.sizes[i])
        broken[i] = len(set(c.reported.names.slice(start, start + size).texts())) < size
    return broken


def _twice_message(c: Candidates, i: int) -> str:
    player = Counter(_by_place(c, i)).most_common(1)[0][0]
    return f"player {player!r} stands in the round twice"


RULES = (
    Rule("bad-id", _no_round_id, _round_id_message),
    Rule("bad-id", lambda c: c.bounds.named == 0, _ladder_message),
    Rule("unknown-ladder", lambda c: c.bounds.known == 0, _unknown_message),
    Rule(
        "malformed",
        lambda c: c.reported.unknown & (c.bounds.strict != 0),
        lambda c, i: c.unknown_field(i),
    ),
    Rule("bad-time", lambda c: c.time == timestamps.UNUSUAL, _time_message),
    Rule(
        "bad-time", lambda c: c.time < EARLIEST, lambda c, i: "completed_at: before the year 1900"
    ),
    Rule("bad-time", lambda c: c.time > c.received_s + c.bounds.most_ahead_s, _ahead_message),
    Rule(
        "bad-weight",
        lambda c: ~((c.weight > 0.0) & (c.weight <= c.bounds.most_weight)),
        _weight_message,
    ),
    Rule("malformed", lambda c: ~(c.ceiling >= LEAST_CEILING), _ceiling_message),
    Rule("too-few-entries", lambda c: c.reported.entries < MIN_ENTRIES, _few_message),
    Rule("too-many-entries", lambda c: c.reported.entries > c.bounds.most_entries, _many_message),
    Rule("bad-rank", lambda c: rounds_with(_no_place(c), c.reported.entries), _place_message),
    Rule("malformed", lambda c: rounds_with(_nobody(c), c.reported.entries), _nobody_message),
    Rule("bad-shares", _bad_shares, _shares_message),
    Rule("bad-id", _no_player, _player_message),
    Rule("duplicate-player", _twice, _twice_message),
    Rule("wrong-partition", _in_another_partition, _partition_message),
)
"""In order of precedence, which is part of the event contract. `unreadable`, `too-large`,
`too-deep` and values of another type are refused before a round has columns (`decoder`,
`fallback`); `duplicate-round` is found behind them (`duplicates`)."""


def check(candidates: Candidates) -> list[Invalid | None]:
    """By round why it is refused; None for a valid one."""
    heads = candidates.reported.heads
    refusals: list[Invalid | None] = [None] * len(heads)
    for rule in RULES:
        broken = rule.broken(candidates)
        if not broken.any():
            continue
        for i in np.flatnonzero(broken).tolist():
            if refusals[i] is None:
                refusals[i] = refusal = Invalid(rule.code, rule.message(candidates, i))
                refusal.tell(heads[i].ladder, heads[i].round_id)
    return refusals
