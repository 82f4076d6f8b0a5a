"""Ladders: the rating parameters of each by offset, the limits of its rounds, and its views."""

import hashlib
import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from stream_rater.config import views as view_settings
from stream_rater.rating.parameters import EloMMR, RatingConfig, for_fingerprint, from_builtins
from stream_rater.rating.systems.two_moment import BETTER

T = TypeVar("T")

TEMPLATE = "*"  # The ladder id that stands for every ladder that is not named.
FILE_LIMITS = ""
"""Stands among the ladders for the limits of the whole file. No ladder has this id."""
NOT_KNOWN = "-"  # The fingerprint of a ladder that a file does not know.


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits of a round. A round that exceeds one is rejected."""

    max_bytes: Annotated[int, Meta(gt=0)] = 8 * 2**20
    max_depth: Annotated[int, Meta(ge=3, le=64)] = 16
    max_entries: Annotated[int, Meta(ge=2)] = 1_000_000
    max_weight: Annotated[float, Meta(gt=0)] = 1000.0
    max_skew_s: Annotated[int, Meta(ge=0)] = 86_400
    """The most seconds by which a round's completion may be later than its arrival in the log."""
    unknown_fields: Literal["count", "reject"] = "count"
    """Whether a round is counted or rejected if it has an unknown field, or a rank beside `dnf`."""
    corrections: Literal["accepted", "refused"] = "accepted"
    """Whether the ladder's corrections, seeds and resets are accepted or refused."""


class Terms(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The parameters and limits of a ladder's rounds at one offset; one is made for each round."""

    rating: RatingConfig
    limits: Limits


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A change of a ladder from an offset on. A table that is absent does not change."""

    from_offset: Annotated[int, Meta(ge=1)]
    """The first offset with the change, in the ladder's partition of round-completed."""
    rating: RatingConfig | None = None
    limits: Limits | None = None


class Ladder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An independent rating pool, with its parameters by offset."""

    rating: RatingConfig
    limits: Limits = Limits()
    from_offset: Annotated[int, Meta(ge=0)] = 0
    """The ladder's first offset. Earlier rounds are handled as if the ladder were not named."""
    changes: tuple[Change, ...] = ()
    listing: view_settings.Listing = view_settings.Listing()
    """Who is listed. It is a view: it is no part of the terms, and does not change by offset."""
    tiers: tuple[view_settings.Tier, ...] = ()
    """The tiers, from the lowest to the highest. They are a view, too."""

    def __post_init__(self) -> None:
        view_settings.check_tiers(self.tiers)
        view_settings.check_listing(self.listing, self.rating)
        after = self.from_offset
        for i, change in enumerate(self.changes):
            if change.from_offset <= after:
                raise ValueError(f"changes[{i}]: from_offset must be over {after}")
            if change.rating is None and change.limits is None:
                raise ValueError(f"changes[{i}]: neither rating nor limits")
            if change.rating is not None and type(change.rating) is not type(self.rating):
                raise ValueError(f"changes[{i}]: another system is another ladder")
            if change.rating is not None:
                view_settings.check_listing(self.listing, change.rating)
            after = change.from_offset

    def at(self, offset: float) -> Terms:
        """The terms at an offset that is not before `from_offset`."""
        rating, limits = self.rating, self.limits
        for change in self.changes:
            if offset < change.from_offset:
                break
            rating, limits = change.rating or rating, change.limits or limits
        return Terms(rating, limits)

    @property
    def ratings(self) -> list[RatingConfig]:
        """The parameters of all terms, in order of offset."""
        changed = [change.rating for change in self.changes if change.rating is not None]
        return [self.rating, *changed]

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets at which the terms begin or change."""
        return (self.from_offset, *(change.from_offset for change in self.changes))


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the page of `serve` looks. It is no part of the terms."""

    name: Annotated[str, Meta(min_length=1, max_length=40)] = "Ratings"  # The heading of the page.
    colour: Annotated[str, Meta(pattern="^#[0-9a-fA-F]{6}$")] = "#1f5fbf"
    logo: Annotated[str, Meta(pattern=r"^[^/\\]+\.(svg|png|webp)$")] | None = None
    """The name of an image file beside the ladders file."""


PLAIN = Page()

DEFAULT_RATING = EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=1.0)
"""The parameters of the paper's reference implementation, and of a log without a ladders file."""


class Ladders(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The ladders by id. `*` is a template for all others, which are rejected if there is none."""

    ladders: dict[str, Ladder]
    limits: Limits = Limits()
    """The limits of size and depth, which are checked before the ladder is known."""
    unknown_ladders: Literal["accepted", "refused"] = "accepted"
    """Whether the HTTP API takes rounds of ladders that have neither a table nor a rating yet. The
    workers do not ask: a verdict depends on the log and the tables alone."""
    page: Page | UnsetType = UNSET

    def __post_init__(self) -> None:
        template = self.ladders.get(TEMPLATE)
        if template is None:
            return
        if template.from_offset or template.changes:
            raise ValueError(
                f"ladder {TEMPLATE!r}: offsets are those of one ladder: name it to change it"
            )
        for name, each in self.ladders.items():
            if each.from_offset and type(each.rating) is not type(template.rating):
                raise ValueError(
                    f"ladder {name!r}: from_offset with another system than {TEMPLATE!r} has: "
                    "another system is another ladder"
                )

    def find(self, ladder: str, offset: float = math.inf) -> Terms | None:
        """The terms of a ladder at an offset. If the ladder has none of its own there, they are the
        template's; None if there is no template either."""
        named = self.ladders.get(ladder)
        if named is None or offset < named.from_offset:
            named = self.ladders.get(TEMPLATE)
        return None if named is None else named.at(offset)

    def views(self, ladder: str) -> view_settings.Views:
        """The views of a ladder: its own if it is named, else the template's."""
        named = self.ladders.get(ladder)
        found = self.ladders.get(TEMPLATE) if named is None else named
        if found is None:
            return view_settings.NO_VIEWS
        terms = ((at, self.find(ladder, at)) for at in self.offsets(ladder))
        known = [view_settings.terms_of(each.rating, at) for at, each in terms if each is not None]
        return view_settings.Views(
            found.listing, found.tiers, (known[0]._replace(from_offset=0), *known[1:])
        )

    def offsets(self, ladder: str) -> list[int]:
        """The offsets at which the terms of a ladder begin or change."""
        named = self.ladders.get(ladder)
        return sorted({0, *(named.offsets if named is not None else ())})

    def history(self, ladder: str) -> tuple[str, ...]:
        """The history of a ladder's terms: one entry `offset:fingerprint` for each change, from
        offset 0 on. The fingerprint is NOT_KNOWN where the file has no terms, and the ladder's
        records are rejected. The history of FILE_LIMITS has the limits of size and depth."""
        if ladder == FILE_LIMITS:
            return (f"0:{self.limits.max_bytes} bytes, depth {self.limits.max_depth}",)
        return tuple(f"{at}:{_fingerprint(self.find(ladder, at))}" for at in self.offsets(ladder))

    def by_table(self, found: Callable[[str], T]) -> Callable[[str], T]:
        """`history` or `views`, called once for each table of the file: producers and clients may
        send any name."""
        known, own = cache(found), {FILE_LIMITS, *self.ladders}
        return lambda ladder: known(ladder if ladder in own else TEMPLATE)


def _fingerprint(terms: Terms | None) -> str:
    """A short hash of everything that decides the ratings, equal on every machine. An option that
    is newer than the first release is hashed only if it is not the default, so that workers of
    older releases get the same hash."""
    if terms is None:
        return NOT_KNOWN
    rating = for_fingerprint(terms.rating)
    limits = msgspec.to_builtins(terms.limits, order="deterministic")
    for newer in ("unknown_fields", "corrections"):
        if limits[newer] == getattr(Limits(), newer):
            del limits[newer]
    return hashlib.sha256(msgspec.json.encode((rating, limits))).hexdigest()[:16]


ANY_LADDER = Ladders(ladders={TEMPLATE: Ladder(rating=DEFAULT_RATING)})
"""The ladders of a log if there is no ladders file. A log keeps them, whatever predicts better."""
BETTER_RATING = from_builtins({"system": "two-moment", **BETTER})
"""The parameters where nobody gave any and no log is bound to others: `Ladder()`, `rate`."""
BETTER_LADDER = Ladders(ladders={TEMPLATE: Ladder(rating=BETTER_RATING)})
"""The ladders of commands that rate a file, if there is no ladders file."""


def any_ladder(rating: RatingConfig) -> Ladders:
    """The ladders if all are rated by the same parameters, as in the offline commands."""
    return Ladders(ladders={TEMPLATE: Ladder(rating=rating)})


def say_cautions(ladders: Ladders, say: Callable[[str], Any]) -> None:
    """Say each warning of the start, and from now on those of Python: `caution_of_rounds`, too."""
    for text in cautions_of(ladders):
        say(text)
    warnings.showwarning = lambda message, *_, **__: say(str(message))


def cautions_of(ladders: Ladders) -> list[str]:
    """One line for each different warning. It names the first ladder that the warning is about."""
    lines: dict[str, str] = {}
    for name, ladder in ladders.ladders.items():
        for rating in ladder.ratings:
            for text in rating.cautions():
                lines.setdefault(text, f"ladder {name!r}: {text}")
    return list(lines.values())
