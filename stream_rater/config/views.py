"""The views of a ladder: who is listed, and the tiers.

Only the read side uses them. They are no part of the terms by which rounds are rated: they change
no belief, fingerprint or history, and workers with files that differ only in views agree.

- A player leaves the list without an event, when the player has been idle for too long, or when
  sigma has drifted too far. Both moments follow from the player's newest event (`listed_until`).
- A tier follows from the tier before and the player's newest event (`tier_after`).
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from stream_rater.contract.events import MAX_ID_BYTES
from stream_rater.rating import parameters

if TYPE_CHECKING:
    from stream_rater.columns.arrays import Flags

DAY_S = 86_400
NOT_LISTED = -math.inf
"""Stands for the time until which a player is listed, if the player is not listed at all."""

MoreThanZero = Annotated[float, Meta(gt=0, le=1e9)]
Rounds = Annotated[int, Meta(ge=1, le=1_000_000)]
Pattern = Annotated[str, Meta(min_length=1, max_length=MAX_ID_BYTES + 1)]


class Listing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which players are on the leaderboard. A rule that is absent excludes nobody."""

    min_rounds: Rounds | None = None
    """The fewest rounds of a listed player. Without it, a listed player is not provisional."""
    max_sigma: MoreThanZero | None = None
    """The greatest sigma of a listed player, with the drift of the days since the last round."""
    idle_days: Annotated[float, Meta(gt=0, le=36_500)] | None = None
    """The days after the last round from which on a player is not listed."""
    unlisted: tuple[Pattern, ...] = ()
    """The ids of players who are never listed, such as bots; or their beginnings, as `bot-*`."""
    display: Literal["rating", "percentile"] = "rating"
    """Whether the leaderboard shows each player's percentile beside the rating. It decides nothing
    about who is listed."""

    @property
    def rules(self) -> tuple[Any, ...]:
        """What decides who is listed."""
        return self.min_rounds, self.max_sigma, self.idle_days

    def hides(self, player: str) -> bool:
        """Whether `unlisted` names the player."""
        return any(
            player.startswith(each[:-1]) if each.endswith("*") else player == each
            for each in self.unlisted
        )


LISTING = Listing()  # The listing of a ladder whose file has none.


class Protection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The number of rounds after a promotion in which there is no demotion."""

    rounds: Rounds


class Tier(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tier of a ladder. It begins at a displayed rating, and ends where the next one begins."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    from_rating: Annotated[float, Meta(ge=-1e9, le=1e9)] | None = msgspec.field(
        name="from", default=None
    )
    """The displayed rating from which on a player is promoted to it. The lowest tier has none."""
    hysteresis: Annotated[float, Meta(ge=0, le=1e9)] | Protection = 0.0
    """The points below `from` at which a player is demoted from it, or a protection by rounds."""


class TermsAt(NamedTuple):
    """What the views need of a ladder's rating parameters from an offset on."""

    from_offset: int
    drift_per_day: float  # The variance that a day without a round adds to a belief, in points^2.
    most_sigma: float  # The sigma beyond which the drift does not raise it; may be infinite.
    provisional_rounds: int


@dataclass(frozen=True)
class Views:
    """Who is listed on a ladder, and its tiers from the lowest to the highest."""

    listing: Listing = LISTING
    tiers: tuple[Tier, ...] = ()
    terms: tuple[TermsAt, ...] = (TermsAt(0, 0.0, math.inf, 0),)
    """The terms in order of offset. The first ones begin at 0."""

    @cached_property
    def id(self) -> str:
        """A short hash of all that decides who is listed and in which tier; empty if the views are
        those of a ladder without any."""
        listing = self.listing
        if not (self.tiers or listing.unlisted or listing.rules != LISTING.rules):
            return ""
        drifts: list[tuple[int, float]] = []
        if self.listing.max_sigma is not None:
            drifts = [(each.from_offset, each.drift_per_day) for each in self.terms]
        # As older releases encode a listing, which had neither `display` nor `unlisted`.
        names = ("min_rounds", "max_sigma", "idle_days")
        rules: dict[str, Any] = dict(zip(names, listing.rules, strict=True))
        if listing.unlisted:
            rules["unlisted"] = sorted({*listing.unlisted})
        text = msgspec.json.encode((rules, self.tiers, drifts))
        return hashlib.sha256(text).hexdigest()[:16]

    @cached_property
    def depend_on_time(self) -> bool:
        """Whether a player may leave the list without an event."""
        drifts = self.listing.max_sigma is not None and any(t.drift_per_day for t in self.terms)
        return drifts or self.listing.idle_days is not None

    @cached_property
    def by_name(self) -> dict[str, int]:
        """The index of each tier by its name."""
        return {tier.name: i for i, tier in enumerate(self.tiers)}

    def at(self, offset: float) -> TermsAt:
        """The terms at an offset."""
        earlier = (terms for terms in reversed(self.terms) if terms.from_offset <= offset)
        return next(earlier, self.terms[0])


NO_VIEWS = Views()
"""The views of a ladder that has none: it lists everybody who is not provisional."""


def terms_of(config: parameters.RatingConfig, from_offset: int) -> TermsAt:
    """What the views need of a rating configuration that holds from an offset on."""
    drift: float = getattr(config, "drift_per_day", 0.0)
    bounded = isinstance(config, parameters.TwoMoment | parameters.Glicko2)
    most = config.initial_sigma if bounded else math.inf
    return TermsAt(from_offset, drift, most, config.provisional_rounds)


def sigma_today(terms: TermsAt, sigma: float, days: float) -> float:
    """The sigma of a belief so many days after the player's last round."""
    drifted = math.sqrt(sigma**2 + terms.drift_per_day * max(days, 0.0))
    return min(drifted, max(sigma, terms.most_sigma))


# --- who is listed ---


class NewestFacts(NamedTuple):
    """What is known of a player from the newest event."""

    rounds: int
    provisional: bool
    sigma: float
    offset: int  # The offset of the event in `round-completed`.
    played_s: int  # When the player's last round was completed, Unix seconds.
    hidden: bool = False  # Whether `Listing.unlisted` names the player.


Rule = Literal["unlisted", "provisional", "min_rounds", "idle_days", "max_sigma"]


class Unmet(NamedTuple):
    """A rule that keeps a player off the list."""

    rule: Rule
    value: float | None = None  # The player's rounds, days since the last round, or sigma.
    bound: float | None = None
    """The fewest rounds, the days from which on nobody is listed, or the greatest sigma."""


def listed_until(views: Views, facts: NewestFacts) -> float:
    """The moment from which on the player is not listed, in Unix seconds: infinity if it never
    comes by itself, NOT_LISTED if the player is not listed at all."""
    if facts.hidden or _unmet_rounds(views, facts) is not None:
        return NOT_LISTED
    return min(_idle_from(views, facts), _unsure_from(views, facts))


def why_not_listed(views: Views, facts: NewestFacts, at_s: float) -> Unmet | None:
    """The first rule that keeps a player off the list at a time in Unix seconds; None if the player
    is listed then."""
    listing, days = views.listing, max(at_s - facts.played_s, 0.0) / DAY_S
    if facts.hidden:
        return Unmet("unlisted")
    if (unmet := _unmet_rounds(views, facts)) is not None:
        return unmet
    if listing.idle_days is not None and at_s >= _idle_from(views, facts):
        return Unmet("idle_days", days, listing.idle_days)
    if listing.max_sigma is not None and at_s >= _unsure_from(views, facts):
        sigma = sigma_today(views.at(facts.offset), facts.sigma, days)
        return Unmet("max_sigma", sigma, listing.max_sigma)
    return None


def _idle_from(views: Views, facts: NewestFacts) -> float:
    """The moment from which on the player is idle for too long, in Unix seconds."""
    idle_days = views.listing.idle_days
    return math.inf if idle_days is None else facts.played_s + DAY_S * idle_days


def _unsure_from(views: Views, facts: NewestFacts) -> float:
    """The moment from which on the player's sigma is too great, in Unix seconds."""
    most = views.listing.max_sigma
    if most is None:
        return math.inf
    room = most**2 - facts.sigma**2
    if room < 0.0:
        return NOT_LISTED
    drift = views.at(facts.offset).drift_per_day
    return facts.played_s + DAY_S * (room / drift) if drift > 0.0 else math.inf


def _unmet_rounds(views: Views, facts: NewestFacts) -> Unmet | None:
    """The rule about rounds, if the player has too few."""
    fewest = views.listing.min_rounds
    if fewest is not None:
        return None if facts.rounds >= fewest else Unmet("min_rounds", facts.rounds, fewest)
    if facts.rounds > 0 and not facts.provisional:
        return None
    return Unmet("provisional", facts.rounds, max(1, views.at(facts.offset).provisional_rounds))


def listed(
    views: Views, header: Any, names: Sequence[str], at_s: float, offset: float = math.inf
) -> "Flags":
    """(n,) whether these players are listed at a time in Unix seconds. `header` (n,) has the fields
    `rounds`, `sigma` and `time` of their beliefs, whose drift is that of an offset."""
    listing, terms = views.listing, views.at(offset)
    fewest = listing.min_rounds or max(1, terms.provisional_rounds)
    found: Flags = header["rounds"] >= fewest
    if listing.unlisted:
        found &= [not listing.hides(name) for name in names]
    if listing.idle_days is not None:
        found &= at_s < header["time"] + DAY_S * listing.idle_days
    if listing.max_sigma is not None:
        room = listing.max_sigma**2 - header["sigma"].astype("f8") ** 2
        found &= room >= 0.0
        if terms.drift_per_day > 0.0:
            found &= at_s < header["time"] + DAY_S * (room / terms.drift_per_day)
    return found


# --- tiers ---

NOT_PROTECTED = -1  # The number of rounds up to which a player is protected who is not.


class TierState(NamedTuple):
    """A player's tier after an event."""

    tier: str
    protected_until: int  # The number of rounds up to which there is no demotion.


def tier_of(views: Views, rating: float) -> str | None:
    """The tier of a displayed rating, without any hysteresis; None if the ladder has no tiers."""
    return views.tiers[_index_of(views.tiers, rating)].name if views.tiers else None


def tier_after(
    views: Views, before: TierState | None, rating: float, rounds: int
) -> TierState | None:
    """A player's tier after an event with this displayed rating and number of rounds. `before` is
    the tier before the event; None for a player without one. Another tier's hysteresis has no
    effect. Returns None if the ladder has no tiers."""
    if not views.tiers:
        return None
    by_rating = _index_of(views.tiers, rating)
    last = None if before is None else views.by_name.get(before.tier)
    if before is None or last is None:
        return TierState(views.tiers[by_rating].name, NOT_PROTECTED)
    if by_rating == last or (
        by_rating < last and _keeps(views.tiers[last], before, rating, rounds)
    ):
        return before
    tier = views.tiers[by_rating]
    if by_rating > last and isinstance(tier.hysteresis, Protection):
        return TierState(tier.name, rounds + tier.hysteresis.rounds)
    return TierState(tier.name, NOT_PROTECTED)


def _keeps(tier: Tier, before: TierState, rating: float, rounds: int) -> bool:
    """Whether a player whose rating is below the tier stays in it."""
    if isinstance(tier.hysteresis, Protection):
        return rounds <= before.protected_until
    assert tier.from_rating is not None  # nobody's rating is below the lowest tier
    return rating >= tier.from_rating - tier.hysteresis


def _index_of(tiers: Sequence[Tier], rating: float) -> int:
    index = 0
    for i, tier in enumerate(tiers):
        if tier.from_rating is not None and rating >= tier.from_rating:
            index = i
    return index


# --- views that make no sense ---


def check_listing(listing: Listing, rating: parameters.RatingConfig) -> None:
    """Raise ValueError if a listing contradicts the rating parameters or lists nobody."""
    for i, pattern in enumerate(listing.unlisted):
        if "*" in pattern[:-1] or pattern == "*":
            raise ValueError(
                f"listing.unlisted[{i}]: {pattern!r}: give an id, or a beginning with * behind it"
            )
    most = listing.max_sigma
    if most is None:
        return
    where = "listing.max_sigma"
    if isinstance(rating, parameters.Climbing | parameters.Codeforces | parameters.Topcoder):
        system = rating.__struct_config__.tag
        raise ValueError(
            f"{where}: the sigma of {system} does not say how well a player is known: leave it out"
        )
    if most >= rating.initial_sigma:
        raise ValueError(
            f"{where}: {most:g} excludes nobody: give less than initial_sigma, which is "
            f"{rating.initial_sigma:g}"
        )
    if isinstance(rating, parameters.Evolving | parameters.EloR) and most <= (
        least := rating.limits[1]
    ):
        raise ValueError(
            f"{where}: {most:g} lists nobody: sigma stays above {least:g}, its limit: give more"
        )


def check_tiers(tiers: Sequence[Tier]) -> None:
    """Raise ValueError if the tiers do not rise from a lowest one, or overlap."""
    names = [tier.name for tier in tiers]
    for i, tier in enumerate(tiers):
        where = f"tiers[{i}]"
        if tier.name in names[:i]:
            raise ValueError(f"{where}: the name {tier.name!r} is taken: give another one")
        if i == 0:
            _check_lowest(tier, where)
            continue
        below = tiers[i - 1]
        if tier.from_rating is None:
            raise ValueError(
                f"{where}: `from` is missing: only the lowest tier, the first, has none"
            )
        if below.from_rating is None:
            continue
        if tier.from_rating <= below.from_rating:
            raise ValueError(
                f"{where}: `from` must be over {below.from_rating:g}, where {below.name!r} begins: "
                "sort the tiers from the lowest to the highest"
            )
        width = tier.from_rating - below.from_rating
        if not isinstance(tier.hysteresis, Protection) and tier.hysteresis > width:
            raise ValueError(
                f"{where}: a hysteresis of {tier.hysteresis:g} overlaps all of {below.name!r}: "
                f"give at most {width:g}"
            )


def _check_lowest(tier: Tier, where: str) -> None:
    if tier.from_rating is not None:
        raise ValueError(
            f"{where}: there is no lowest tier: leave `from` out, so that {tier.name!r} has "
            "everybody below the second tier"
        )
    if tier.hysteresis != 0.0:
        raise ValueError(f"{where}: nobody is demoted from the lowest tier: leave hysteresis out")
