"""Decodes and validates seeds and resets (`contract.seeds`) into columns.

Whether a seed or a reset is accepted depends on its record, on the ladders file at its offset, and
on the duplicate window before it; never on a belief. A row that changes nothing is no mistake.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.sharding import ANYWHERE, partition_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladders, Terms
from stream_rater.contract import events, seeds
from stream_rater.contract.events import UNDECODABLE, shown
from stream_rater.contract.record import Record, header
from stream_rater.contract.seeds import MOST_PLAYERS, SEEDS, PlayerReset, PlayersSeeded
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.record import MOST_ROUNDS
from stream_rater.rounds.batch import time_mistake
from stream_rater.rounds.decoder import kind_of
from stream_rater.rounds.fallback import LONGEST_TEXT
from stream_rater.rounds.validation import EARLIEST, Invalid, id_mistake, with_cure

MOST_SEEDED_ROUNDS = MOST_ROUNDS - 1
"""The most rounds that may stand behind a seeded rating. At least one more must fit a record."""
MOST_SIGMAS = 30.0
"""A rating lies within this many initial sigmas of the initial mu. The grid of a belief has no room
for performances far beyond it."""
LEAST_PART = 1e-6
"""The least sigma, as a part of the initial one."""
CURE = "is the rating of another scale?"


class SeedHead(NamedTuple):
    """The text fields of a seed or a reset. It is a `RoundHead`."""

    round_id: str
    ladder: str
    completed_at: str
    """The time from which on the rating counts, as reported."""


@dataclass(frozen=True, slots=True)
class Seed:
    """A valid seed or reset of n players, as columns, with its place in the log."""

    kind: str
    """`players-seeded` or `player-reset`."""
    head: SeedHead
    partition: int
    offset: int
    time: int
    """The time from which on the rating counts, Unix seconds."""
    rating: RatingConfig
    """The ladder's parameters at the offset."""
    names: StringColumn
    """(n,) the players."""
    mu: Floats
    """(n,) the ratings, as a record stores them (float32). NaN where a reset keeps the rating."""
    sigma: Floats
    """(n,) the uncertainties, as a record stores them; of a reset the least one afterwards."""
    rounds: Ints
    """(n,) the number of rounds that stand behind each rating; 0 of a reset."""

    def __len__(self) -> int:
        return len(self.mu)

    @property
    def ladder(self) -> str:
        """The ladder."""
        return self.head.ladder

    @property
    def round_id(self) -> str:
        """The id."""
        return self.head.round_id

    @property
    def is_reset(self) -> bool:
        """Whether this is a reset. Otherwise it is a seed."""
        return self.kind == seeds.RESET

    def take(self, rows: Ints, names: StringColumn | None = None) -> "Seed":
        """These rows only; with these (len(rows),) names in place of the own ones if they are
        given."""
        return Seed(
            self.kind, self.head, self.partition, self.offset, self.time, self.rating,
            self.names.take(rows) if names is None else names,
            self.mu[rows], self.sigma[rows], self.rounds[rows],
        )  # fmt: skip


def is_seed(record: Record) -> bool:
    """Whether a record's header says that it is a seed or a reset."""
    return bool(record.headers) and kind_of(record) in SEEDS


def decode(record: Record, ladders: Ladders, partitions: int = ANYWHERE) -> Seed:
    """Decode and validate the seed or reset in a record of a topic with `partitions` partitions.
    Raises Invalid. Its `round_id` must still be checked by the duplicate window."""
    value, kind = record.value or b"", kind_of(record)
    if record.unreadable:
        raise Invalid("too-large", record.unreadable)
    if len(value) > (most := ladders.limits.max_bytes):
        raise Invalid("too-large", f"{len(value)} bytes, over the limit of {most}")
    packed = "msgpack" in header(record.headers, "content-type").lower()
    try:
        event = seeds.from_message(kind, value, packed=packed)
    except UNDECODABLE as error:
        raise Invalid("malformed", with_cure(shown(str(error)[:LONGEST_TEXT]))) from None
    try:
        return _validated(event, record, ladders, partitions)
    except Invalid as invalid:
        invalid.set_round(event.ladder, event.round_id)
        raise


def _validated(
    event: PlayersSeeded | PlayerReset, record: Record, ladders: Ladders, partitions: int
) -> Seed:
    for name in ("round_id", "ladder"):
        if mistake := id_mistake(getattr(event, name)):
            raise Invalid("bad-id", f"{name}: {mistake}")
    terms = ladders.find(event.ladder, record.offset)
    if terms is None:
        raise Invalid("unknown-ladder", f"ladder {event.ladder!r} is not configured")
    if terms.limits.corrections == "refused":
        raise Invalid(
            "corrections-refused",
            f"ladder {event.ladder!r} takes no corrections, seeds and resets: its limits say so",
        )
    time = _time_of(event, record, terms)
    kind = event.kind
    if isinstance(event, PlayerReset):
        columns = _reset_columns(event, terms.rating)
    else:
        columns = _seed_columns(event, terms.rating)
    home = partition_of(event.ladder, partitions) if partitions != ANYWHERE else record.partition
    if record.partition != home:
        raise Invalid(
            "wrong-partition",
            f"ladder {event.ladder!r} has its rounds in partition {home}, this {kind} is in "
            f"{record.partition}: the record's key must be the ladder, and a producer of "
            "librdkafka needs partitioner=murmur2_random",
        )
    head = SeedHead(event.round_id, event.ladder, event.at)
    return Seed(kind, head, record.partition, record.offset, time, terms.rating, *columns)


def _time_of(event: PlayersSeeded | PlayerReset, record: Record, terms: Terms) -> int:
    if mistake := time_mistake(event.at):
        raise Invalid("bad-time", f"at: {mistake}")
    time, most_s = events.parse_time(event.at), terms.limits.max_skew_s
    if time < EARLIEST:
        raise Invalid("bad-time", "at: before the year 1900")
    if time > record.received_s + most_s:
        raise Invalid("bad-time", f"at: over {most_s} s ahead of its arrival")
    return time


Columns = tuple[StringColumn, Floats, Floats, Ints]
"""The names, mu, sigma and rounds of a Seed."""


def _reset_columns(event: PlayerReset, rating: RatingConfig) -> Columns:
    if mistake := id_mistake(event.player):
        raise Invalid("bad-id", f"player: {mistake}")
    mu = math.nan if event.mu is UNSET else event.mu
    if event.mu is not UNSET:
        _check(rating, "mu", mu, _mu_mistake)
    _check(rating, "sigma", event.sigma, _sigma_mistake)
    names = StringColumn.of([event.player])
    return names, _singles([mu]), _singles([event.sigma]), np.zeros(1, np.int64)


def _seed_columns(event: PlayersSeeded, rating: RatingConfig) -> Columns:
    if not 1 <= len(event.players) <= MOST_PLAYERS:
        text = f"players: {len(event.players)}, a seed has from 1 to {MOST_PLAYERS:,}"
        raise Invalid("bad-seed", text)
    names = [each.player for each in event.players]
    for i, name in enumerate(names):
        if mistake := id_mistake(name):
            raise Invalid("bad-id", f"players[{i}].player: {mistake}")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise Invalid("bad-id", f"player {twice!r} stands in the seed twice")
    for i, each in enumerate(event.players):
        _check(rating, f"players[{i}].mu", each.mu, _mu_mistake)
        if each.sigma is not None:
            _check(rating, f"players[{i}].sigma", each.sigma, _sigma_mistake)
        if not 1 <= each.rounds <= MOST_SEEDED_ROUNDS:
            text = f"players[{i}].rounds: {each.rounds} is not in 1..{MOST_SEEDED_ROUNDS}"
            raise Invalid("bad-seed", text)
    initial = rating.initial_sigma
    given = [
        each.sigma if each.sigma is not None and rating.takes_sigma else initial
        for each in event.players
    ]
    mu = _singles([each.mu for each in event.players])
    rounds = np.array([each.rounds for each in event.players], np.int64)
    return StringColumn.of(names), mu, _singles(given), rounds


def _singles(values: list[float]) -> Floats:
    """These numbers as a record stores them."""
    return np.array(values, np.float32).astype(np.float64)


def _check(rating: RatingConfig, place: str, value: float, mistake_in: Any) -> None:
    if mistake := mistake_in(rating, value):
        raise Invalid("bad-seed", f"{place}: {mistake}")


def _mu_mistake(rating: RatingConfig, mu: float) -> str:
    """The reason why a rating is not valid; empty if it is."""
    initial, sigma = rating.initial_mu, rating.initial_sigma
    if not abs(mu - initial) <= MOST_SIGMAS * sigma:
        return f"{mu:g} is not within {MOST_SIGMAS * sigma:g} of the initial {initial:g}: {CURE}"
    if rating.limits_mu and rating.floor is not None and mu < rating.floor:
        return f"{mu:g} is below the floor of {rating.floor:g}"
    return ""


def _sigma_mistake(rating: RatingConfig, sigma: float) -> str:
    """The reason why an uncertainty is not valid; empty if it is."""
    initial = rating.initial_sigma
    if not LEAST_PART * initial <= sigma <= initial:
        return f"{sigma:g} is not over 0 and at most the initial {initial:g}: {CURE}"
    return ""


def mistake_in(rating: RatingConfig, mu: float, sigma: float | None, rounds: int) -> str:
    """The first mistake in the numbers of a seeded player, which begins with the name of the field;
    empty if there is none."""
    if mistake := _mu_mistake(rating, mu):
        return f"mu: {mistake}"
    if sigma is not None and (mistake := _sigma_mistake(rating, sigma)):
        return f"sigma: {mistake}"
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
