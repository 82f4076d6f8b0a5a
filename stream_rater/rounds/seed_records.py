"""Seeds and resets (`contract.seeds`): decodes and validates their records, and makes them.

Whether a seed or a reset is accepted depends on its record, on the ladders file at its offset, and
on the duplicate window before it; never on a belief. A row that changes nothing is no mistake.

A seed that our own programs send has an id that is made of its content. So the same players with
the same ratings have the same id, whoever sends them, and however often.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladders, Terms
from stream_rater.contract import events, seeds
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import MOST_PLAYERS, SEEDS, PlayerReset, PlayersSeeded
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.record import MOST_ROUNDS
from stream_rater.rounds import batch, decoder
from stream_rater.rounds.validation import EARLIEST, Invalid, id_mistake

MOST_SEEDED_ROUNDS = MOST_ROUNDS - 1
"""The most rounds that may stand behind a seeded rating. At least one more must fit a record."""
MOST_SIGMAS = 30.0
"""A rating lies within so many initial sigmas of the initial mu. A belief's grid ends beyond."""
LEAST_PART = 1e-6  # The least sigma, as a part of the initial one.
CURE = "is the rating of another scale?"
PRECISION = 7
"""The decimals of a rating on a scale whose initial sigma is 1. A record stores fewer (float32)."""

_TRUESKILL, _GLICKO = (25.0, 25.0 / 3.0), (1500.0, 350.0)
SCALES = {"trueskill": _TRUESKILL, "openskill": _TRUESKILL, "glicko": _GLICKO, "elo": _GLICKO}
"""By the name of a system, the mu and the sigma that a newcomer has there by default."""

OWN = "ladder"  # The name of the scale of the ladder itself.
NAMES = (*SCALES, OWN)


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


def is_seed(record: Record) -> bool:
    """Whether a record's header says that it is a seed or a reset."""
    return bool(record.headers) and decoder.kind_of(record) in SEEDS


def decode(record: Record, ladders: Ladders, partitions: int = ANYWHERE) -> Seed:
    """Decode and validate the seed or reset in a record of a topic with `partitions` partitions.
    Raises Invalid. Its `round_id` must still be checked by the duplicate window."""
    event = decoder.event_in(record, ladders.limits.max_bytes, seeds.from_message)
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
    time, rating = _time_of(event, record, terms), terms.rating
    if isinstance(event, PlayerReset):
        columns = _reset_columns(event, rating)
    else:
        columns = _seed_columns(event, rating)
    decoder.check_partition(event.ladder, event.kind, record, partitions)
    head = events.Round(round_id=event.round_id, ladder=event.ladder, completed_at=event.at)
    return Seed(event.kind, head, record.partition, record.offset, time, rating, *columns)


def _time_of(event: PlayersSeeded | PlayerReset, record: Record, terms: Terms) -> int:
    if mistake := batch.time_mistake(event.at):
        raise Invalid("bad-time", f"at: {mistake}")
    time, most_s = events.parse_time(event.at), terms.limits.max_skew_s
    if time < EARLIEST:
        raise Invalid("bad-time", "at: before the year 1900")
    if time > record.received_s + most_s:
        raise Invalid("bad-time", f"at: over {most_s} s ahead of its arrival")
    return time


Columns = tuple[StringColumn, Floats, Floats, Ints]  # The names, mu, sigma and rounds of a Seed.


def _reset_columns(event: PlayerReset, rating: RatingConfig) -> Columns:
    if mistake := id_mistake(event.player):
        raise Invalid("bad-id", f"player: {mistake}")
    mu = None if event.mu is UNSET else event.mu
    if mistake := mistake_in(rating, mu, event.sigma, 1):
        raise Invalid("bad-seed", mistake)
    names = StringColumn.of([event.player])
    mus = _singles([math.nan if mu is None else mu])
    return names, mus, _singles([event.sigma]), np.zeros(1, np.int64)


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


# --- making seeds ---------------------------------------------------------------------------------


class BadScale(ValueError):
    """A text is not a scale. The text of the error is one line with the cure."""


class Scale(NamedTuple):
    """The scale of a rating system: what a newcomer has there."""

    mu: float
    sigma: float

    def to(self, target: "Scale") -> tuple[float, float]:
        """The map to another scale: shift and factor. It maps newcomers to newcomers: mu becomes
        shift + factor · mu, and sigma factor · sigma."""
        return target.mu - self.mu * target.sigma / self.sigma, target.sigma / self.sigma


def scale_of(text: str, rating: RatingConfig) -> Scale:
    """The scale that a text means: one of NAMES, or `MU,SIGMA`. Raises BadScale."""
    if text == OWN:
        return own_scale(rating)
    if text in SCALES:
        return Scale(*SCALES[text])
    first, comma, second = text.partition(",")
    try:
        found = Scale(float(first), float(second))
    except ValueError:
        comma = ""
    if not comma or not math.isfinite(found.mu) or not 0.0 < found.sigma < math.inf:
        raise BadScale(
            f"{text!r} is no scale: give {', '.join(NAMES)}, or the mu and the sigma of a newcomer "
            "as in 25,8.333"
        )
    return found


def own_scale(rating: RatingConfig) -> Scale:
    """The scale of a ladder with these parameters."""
    return Scale(rating.initial_mu, rating.initial_sigma)


def decimals_of(rating: RatingConfig) -> int:
    """The number of decimals with which ratings of a ladder are written."""
    return max(0, math.ceil(PRECISION - math.log10(rating.initial_sigma)))


class SeedMessage(NamedTuple):
    """A seed that can be sent."""

    round_id: str
    players: int  # The number of its players.
    value: bytes  # The event as JSON, with its kind in `event_type`.


def seed_messages(
    ladder: str, at: str, source: str, players: Iterable[seeds.SeededPlayer],
    most_bytes: int = seeds.MOST_SEED_BYTES,
) -> Iterator[SeedMessage]:  # fmt: skip
    """Yield seeds with these players in order, of at most MOST_PLAYERS and `most_bytes` bytes."""
    wanted = iter(players)
    while some := list(islice(wanted, seeds.MOST_PLAYERS)):
        yield from _within(ladder, at, source, some, most_bytes)


def _within(
    ladder: str, at: str, source: str, players: Sequence[seeds.SeededPlayer], most_bytes: int
) -> Iterator[SeedMessage]:
    message = seed_message(ladder, at, source, players)
    if len(message.value) <= most_bytes or len(players) == 1:
        yield message
        return
    half = len(players) // 2
    yield from _within(ladder, at, source, players[:half], most_bytes)
    yield from _within(ladder, at, source, players[half:], most_bytes)


def seed_message(
    ladder: str, at: str, source: str, players: Sequence[seeds.SeededPlayer]
) -> SeedMessage:
    """One seed with these players. Its id does not depend on its time."""
    listed = msgspec.json.encode(players)
    content = msgspec.json.encode((ladder, source)) + listed
    round_id = f"seed-{hashlib.blake2b(content, digest_size=16).hexdigest()}"
    value = events.to_json(
        seeds.PlayersSeeded(
            event_type=seeds.SEEDED, ladder=ladder, round_id=round_id, at=at, source=source,
            players=msgspec.Raw(listed),  # type: ignore[arg-type]
        )
    )  # fmt: skip
    return SeedMessage(round_id, len(players), value)


class Taken(NamedTuple):
    """How much of another ladder's certainty is taken over, in points of the target."""

    more_sigma: float = 0.0  # What is added to each sigma.
    most_sigma: float = math.inf
    """The greatest sigma. No sigma is greater than a newcomer's, either."""


def brought(
    source: RatingConfig, target: RatingConfig, mu: Floats, sigma: Floats, taken: Taken
) -> tuple[Floats, Floats, int]:
    """(n,) mu and (n,) sigma with which players of one ladder begin on another one, and the number
    of sigmas that were cut. `mu` and `sigma` (n,) are those on the ladder of the parameters
    `source`."""
    shift, factor = own_scale(source).to(own_scale(target))
    decimals = decimals_of(target)
    wanted = factor * sigma + taken.more_sigma
    most = min(taken.most_sigma, target.initial_sigma)
    to_mu, to_sigma = (shift + factor * mu).round(decimals), wanted.round(decimals)
    found = nearest_valid(target, to_mu, np.minimum(to_sigma, most))
    return *found, int((to_sigma > most).sum())


def seeded_players(
    rating: RatingConfig, players: Sequence[str], mu: Floats, sigma: Floats
) -> list[seeds.SeededPlayer]:
    """These players as a seed of a ladder has them. A system that learns no sigma gets none."""
    takes_sigma = rating.takes_sigma
    return [
        seeds.SeededPlayer(player, its_mu, its_sigma if takes_sigma else None)
        for player, its_mu, its_sigma in zip(players, mu.tolist(), sigma.tolist(), strict=True)
    ]
