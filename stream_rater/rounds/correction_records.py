"""Decodes the corrections, seeds and resets among the records of `round-completed`, and validates
them as far as the record and the ladders file say.

All of them have one prologue, `_validated`. The rest needs the log before a record: `replay.ledger`
checks whether the log has the round or the player that is corrected, and validates the new
standings of an amendment, and `DuplicateWindow` checks the id of a seed or a reset. Neither depends
on a belief: a row of a seed that changes nothing is no mistake.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.sharding import ANYWHERE, partition_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladders, Terms
from stream_rater.contract import corrections, events, seeds
from stream_rater.contract.corrections import Correction
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.record import MOST_ROUNDS
from stream_rater.rounds import batch, validation
from stream_rater.rounds.decoder import is_packed, kind_of, too_large
from stream_rater.rounds.fallback import LONGEST_TEXT
from stream_rater.rounds.validation import Invalid, id_mistake

MOST_SEASONS = 2**16 - 1  # The most seasons of a ladder, since a belief counts them in 16 bits.
LAST_SEASON = 2**31 - 1
MOST_SIGMA = 1e9

FIRST, LAST = -(2**62), 2**62  # Times before and after those of all rounds, Unix seconds.

IDS, IDS_OF_SEEDS = ("ladder", "round_id", "player", "into"), ("round_id", "ladder")
"""The fields with ids that a correction may have, and those that each seed and reset has, in the
order in which they are checked."""

MOST_SEEDED_ROUNDS = MOST_ROUNDS - 1
"""The most rounds that may stand behind a seeded rating. At least one more must fit a record."""
MOST_SIGMAS = 30.0
"""A rating lies within so many initial sigmas of the initial mu. A belief's grid ends beyond."""
LEAST_PART = 1e-6  # The least sigma, as a part of the initial one.
CURE = "is the rating of another scale?"

E = TypeVar("E", bound=Correction | seeds.RatingGiven)
T = TypeVar("T")


def is_seed(record: Record) -> bool:
    """Whether a record's header says that it is a seed or a reset."""
    return kind_of(record) in seeds.SEEDS


def is_correction(record: Record) -> bool:
    """Whether a record's header says that it is neither a round nor a seed or a reset."""
    return kind_of(record) not in ("", *seeds.SEEDS)


def _validated(
    record: Record, ladders: Ladders, partitions: int, kinds: Mapping[str, type[E]],
    check: Callable[[E, Record, Terms], T],
) -> T:  # fmt: skip
    """Decode the event in a record, which has one of these kinds, and return what `check` makes of
    it. `check` has the rules of the kinds. Raises Invalid, with the ladder and the round id if they
    were read. The order of the checks is part of the event contract."""
    value = record.value or b""
    if (refusal := too_large(record, value, ladders.limits.max_bytes)) is not None:
        raise refusal
    name = kind_of(record)
    if (kind := kinds.get(name)) is None:
        known = ", ".join((*corrections.KINDS, *seeds.SEEDS))
        text = f"{corrections.EVENT_TYPE} {events.shown(name[:LONGEST_TEXT])!r} is none of {known}"
        raise Invalid("malformed", text)
    try:
        event = corrections.from_message(kind, value, packed=is_packed(record))
    except events.UNDECODABLE as error:
        text = events.shown(str(error)[:LONGEST_TEXT])
        raise Invalid("malformed", validation.with_cure(text)) from None
    gives_ratings = isinstance(event, seeds.RatingGiven)
    try:
        for field in IDS_OF_SEEDS if gives_ratings else IDS:
            given = getattr(event, field, None)
            if given is not None and (mistake := id_mistake(given)):
                raise Invalid("bad-id", f"{field}: {mistake}")
        terms = ladders.find(event.ladder, record.offset)
        if terms is None:
            raise Invalid("unknown-ladder", f"ladder {event.ladder!r} is not configured")
        found = check(event, record, terms)
        home = partition_of(event.ladder, partitions) if partitions else record.partition
        if record.partition != home:
            what = name if gives_ratings else "correction"
            text = validation.partition_mistake(event.ladder, home, what, record.partition)
            raise Invalid("wrong-partition", text)
    except Invalid as invalid:
        raise about(event, invalid) from None
    return found


def about(event: Correction | seeds.RatingGiven, invalid: Invalid) -> Invalid:
    """The rejection of this event, which names the event's ladder and round from now on."""
    invalid.set_round(event.ladder, getattr(event, "round_id", ""))
    return invalid


# --- corrections ----------------------------------------------------------------------------------


def decode_correction(record: Record, ladders: Ladders, partitions: int = ANYWHERE) -> Correction:
    """Decode and validate the correction in a record of a topic with `partitions` partitions.
    Raises Invalid if it is not well-formed, or if its ladder accepts no corrections."""
    correction = well_formed(record, ladders, partitions)
    if (invalid := rejection(correction, ladders, record.offset)) is not None:
        raise invalid
    return correction


def rejection(correction: Correction, ladders: Ladders, offset: int) -> Invalid | None:
    """The reason why the ladder accepts no corrections at this offset; None if it accepts them."""
    terms = ladders.find(correction.ladder, offset)
    if terms is None or terms.limits.corrections == "accepted":
        return None
    text = f"ladder {correction.ladder!r} takes no corrections: its limits say so"
    return about(correction, Invalid("corrections-refused", text))


def well_formed(record: Record, ladders: Ladders, partitions: int = ANYWHERE) -> Correction:
    """Like `decode_correction`, but also for a ladder that takes no corrections. Raises Invalid."""
    return _validated(record, ladders, partitions, corrections.KINDS, _checked)


def _checked(correction: Correction, _record: Record, _terms: Terms) -> Correction:
    """The same correction. Raises Invalid by the rules of its kind."""
    match correction:
        case corrections.PlayerRemoved(since=since, until=until):
            span = span_of(correction)
            if span.since >= span.until:
                raise Invalid("bad-time", f"from: {since} is not before until: {until}")
        case corrections.PlayerMerged(player=player, into=into):
            if player == into:
                raise Invalid("bad-merge", f"player {player!r} cannot be merged into itself")
        case corrections.SeasonStarted(season=season, keep=keep, sigma=sigma):
            if not 1 <= season <= LAST_SEASON:
                raise Invalid("bad-season", f"season: {season} is not in 1..{LAST_SEASON}")
            if not 0.0 <= keep <= 1.0:
                raise Invalid("bad-season", f"keep: {keep} is not in [0, 1]")
            if not 0.0 <= sigma <= MOST_SIGMA:
                raise Invalid("bad-season", f"sigma: {sigma} is not in [0, {MOST_SIGMA:g}]")
    return correction


class Span(NamedTuple):
    """A span of times in which a player is removed."""

    since: int  # The first time, in Unix seconds.
    until: int  # The time after the last one.
    seeds: bool = False  # Whether the player is removed from seeds and resets of the span, too.

    def has(self, time: int) -> bool:
        return self.since <= time < self.until


def span_of(removed: corrections.PlayerRemoved) -> Span:
    """The span of times in which a player is removed. Raises Invalid."""
    times = []
    for name, text, default in (("from", removed.since, FIRST), ("until", removed.until, LAST)):
        if text is not None and (mistake := batch.time_mistake(text)):
            raise Invalid("bad-time", f"{name}: {mistake}")
        times.append(default if text is None else events.parse_time(text))
    return Span(times[0], times[1], removed.seed is True)


def amended_message(
    amended: corrections.RoundAmended, completed_at: str, weight: float, ceiling: float
) -> bytes:
    """Encode an amended round as a message of `round-completed`. `completed_at`, `weight` and
    `ceiling` are those of the original round, used where the amendment leaves a field out. An
    infinite ceiling means that there is none."""
    fields = msgspec.structs.asdict(amended)
    ours = {"completed_at": completed_at, "weight": weight}
    ours["performance_ceiling"] = None if math.isinf(ceiling) else ceiling
    given = {name: fields[name] for name in ours if fields[name] is not msgspec.UNSET}
    whole = {"round_id": amended.round_id, "ladder": amended.ladder, **ours, **given}
    return events.to_json({**whole, "standings": [_entry(each) for each in amended.standings]})


def _entry(entry: events.Entry) -> dict[str, object]:
    """The fields of an entry that are set. A score of 0 is one of them."""
    fields = msgspec.structs.asdict(entry).items()
    return {name: value for name, value in fields if value is not None and value is not False}


def names_in(correction: Correction) -> tuple[str, ...]:
    """The players whom a correction names, except those in new standings."""
    if isinstance(correction, corrections.PlayerMerged):
        return correction.player, correction.into
    return (correction.player,) if isinstance(correction, corrections.PlayerRemoved) else ()


def round_in(correction: Correction) -> str:
    """The id of the round that a correction is about, or the empty string."""
    about_round = corrections.RoundVoided | corrections.RoundAmended
    return correction.round_id if isinstance(correction, about_round) else ""


# --- seeds and resets -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seed:
    """A valid seed or reset of n players, as columns, with its place in the log."""

    kind: str  # `players-seeded` or `player-reset`.
    head: events.Round  # Its time is the reported one from which on the rating counts.
    partition: int
    offset: int
    time: int  # The time from which on the rating counts, Unix seconds.
    rating: RatingConfig  # The ladder's parameters at the offset.
    names: StringColumn  # (n,) the players.
    mu: Floats
    """(n,) the ratings, as a record stores them (float32). NaN where a reset keeps the rating."""
    sigma: Floats
    """(n,) the uncertainties, as a record stores them; of a reset the least one afterwards."""
    rounds: Ints  # (n,) the number of rounds that stand behind each rating; 0 of a reset.

    def __len__(self) -> int:
        return len(self.mu)

    @property
    def ladder(self) -> str:
        return self.head.ladder

    @property
    def round_id(self) -> str:
        return self.head.round_id

    @property
    def is_reset(self) -> bool:
        """Whether this is a reset. Otherwise it is a seed."""
        return self.kind == seeds.RESET

    def take(self, rows: Ints, names: StringColumn | None = None) -> "Seed":
        """Only these rows. `names`: (len(rows),) names in place of the own ones."""
        return Seed(
            self.kind, self.head, self.partition, self.offset, self.time, self.rating,
            self.names.take(rows) if names is None else names,
            self.mu[rows], self.sigma[rows], self.rounds[rows],
        )  # fmt: skip


def decode_seed(record: Record, ladders: Ladders, partitions: int = ANYWHERE) -> Seed:
    """Decode and validate the seed or reset in a record of a topic with `partitions` partitions.
    Raises Invalid. Its `round_id` must still be checked by the duplicate window."""
    return _validated(record, ladders, partitions, seeds.SEEDS, _seed_of)


def _seed_of(event: seeds.PlayersSeeded | seeds.PlayerReset, record: Record, terms: Terms) -> Seed:
    """The seed or the reset as columns. Raises Invalid by the rules of its kind."""
    if terms.limits.corrections == "refused":
        raise Invalid(
            "corrections-refused",
            f"ladder {event.ladder!r} takes no corrections, seeds and resets: its limits say so",
        )
    time, rating = _time_of(event, record, terms), terms.rating
    if isinstance(event, seeds.PlayerReset):
        columns = _reset_columns(event, rating)
    else:
        columns = _seed_columns(event, rating)
    head = events.Round(round_id=event.round_id, ladder=event.ladder, completed_at=event.at)
    return Seed(event.kind, head, record.partition, record.offset, time, rating, *columns)


def _time_of(event: seeds.PlayersSeeded | seeds.PlayerReset, record: Record, terms: Terms) -> int:
    if mistake := batch.time_mistake(event.at):
        raise Invalid("bad-time", f"at: {mistake}")
    time, most_s = events.parse_time(event.at), terms.limits.max_skew_s
    if time < validation.EARLIEST:
        raise Invalid("bad-time", "at: before the year 1900")
    if time > record.received_s + most_s:
        raise Invalid("bad-time", f"at: over {most_s} s ahead of its arrival")
    return time


Columns = tuple[StringColumn, Floats, Floats, Ints]  # The names, mu, sigma and rounds of a Seed.


def _reset_columns(event: seeds.PlayerReset, rating: RatingConfig) -> Columns:
    if mistake := id_mistake(event.player):
        raise Invalid("bad-id", f"player: {mistake}")
    mu = None if event.mu is UNSET else event.mu
    if mistake := mistake_in(rating, mu, event.sigma, 1):
        raise Invalid("bad-seed", mistake)
    names = StringColumn.of([event.player])
    mus = _singles([math.nan if mu is None else mu])
    return names, mus, _singles([event.sigma]), np.zeros(1, np.int64)


def _seed_columns(event: seeds.PlayersSeeded, rating: RatingConfig) -> Columns:
    if not 1 <= len(event.players) <= seeds.MOST_PLAYERS:
        text = f"players: {len(event.players)}, a seed has from 1 to {seeds.MOST_PLAYERS:,}"
        raise Invalid("bad-seed", text)
    names = [each.player for each in event.players]
    for i, name in enumerate(names):
        if mistake := id_mistake(name):
            raise Invalid("bad-id", f"players[{i}].player: {mistake}")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise Invalid("bad-id", f"player {twice!r} stands in the seed twice")
    for i, each in enumerate(event.players):
        if mistake := mistake_in(rating, each.mu, each.sigma, each.rounds):
            raise Invalid("bad-seed", f"players[{i}].{mistake}")
    initial, takes = rating.initial_sigma, rating.takes_sigma
    sigmas = (each.sigma if takes else None for each in event.players)
    sigma = _singles([initial if each is None else each for each in sigmas])
    mu = _singles([each.mu for each in event.players])
    rounds = np.array([each.rounds for each in event.players], np.int64)
    return StringColumn.of(names), mu, sigma, rounds


def _singles(values: list[float]) -> Floats:
    """These numbers as a record stores them."""
    return np.array(values, np.float32).astype(np.float64)


def mistake_in(rating: RatingConfig, mu: float | None, sigma: float | None, rounds: int) -> str:
    """The first mistake in the numbers of a seeded player, which begins with the name of the field;
    empty if there is none. None: not given."""
    initial, spread = rating.initial_mu, rating.initial_sigma
    if mu is not None and not abs(mu - initial) <= (room := MOST_SIGMAS * spread):
        return f"mu: {mu:g} is not within {room:g} of the initial {initial:g}: {CURE}"
    if mu is not None and rating.limits_mu and rating.floor is not None and mu < rating.floor:
        return f"mu: {mu:g} is below the floor of {rating.floor:g}"
    if sigma is not None and not LEAST_PART * spread <= sigma <= spread:
        return f"sigma: {sigma:g} is not over 0 and at most the initial {spread:g}: {CURE}"
    if not 1 <= rounds <= MOST_SEEDED_ROUNDS:
        return f"rounds: {rounds} is not in 1..{MOST_SEEDED_ROUNDS}"
    return ""


def nearest_valid(rating: RatingConfig, mu: Floats, sigma: Floats) -> tuple[Floats, Floats]:
    """(n,) the ratings and (n,) the sigmas nearest to these that a seed of the ladder can have."""
    room = MOST_SIGMAS * rating.initial_sigma
    least = rating.initial_mu - room
    if rating.limits_mu and rating.floor is not None:
        least = max(least, rating.floor)
    first, last = LEAST_PART * rating.initial_sigma, rating.initial_sigma
    return np.clip(mu, least, rating.initial_mu + room), np.clip(sigma, first, last)
