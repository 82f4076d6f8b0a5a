"""Ladders: how each is rated from which offset on, and what its rounds may be at most."""

import hashlib
import math
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from stream_rater.rating.parameters import EloMMR, RatingConfig, for_fingerprint

TEMPLATE = "*"
"""The ladder id that stands for every ladder not named."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a round may be at most; beyond it is rejected."""

    max_bytes: Annotated[int, Meta(gt=0)] = 8 * 2**20
    max_depth: Annotated[int, Meta(ge=3, le=64)] = 16
    max_entries: Annotated[int, Meta(ge=2)] = 1_000_000
    max_weight: Annotated[float, Meta(gt=0)] = 1000.0
    max_skew_s: Annotated[int, Meta(ge=0)] = 86_400
    """How far a round's completion may lie ahead of the time the log received it."""
    unknown_fields: Literal["count", "reject"] = "count"
    """What becomes of a round with a field that we do not know, or with a rank beside `dnf`."""
    corrections: Literal["accepted", "refused"] = "accepted"
    """What becomes of the ladder's corrections."""


class Terms(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What holds for a ladder's rounds at one offset of the log. Made anew for each round."""

    rating: RatingConfig
    limits: Limits


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to hold for a ladder from an offset on; a table that is absent stays as it was."""

    from_offset: Annotated[int, Meta(ge=1)]
    """In the ladder's partition of round-completed."""
    rating: RatingConfig | None = None
    limits: Limits | None = None


class Ladder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One independent rating pool, and how it is rated from which offset on."""

    rating: RatingConfig
    limits: Limits = Limits()
    from_offset: Annotated[int, Meta(ge=0)] = 0
    """Before it the ladder is as if it were not named."""
    changes: tuple[Change, ...] = ()

    def __post_init__(self) -> None:
        after = self.from_offset
        for i, change in enumerate(self.changes):
            if change.from_offset <= after:
                raise ValueError(f"changes[{i}]: from_offset must be over {after}")
            if change.rating is None and change.limits is None:
                raise ValueError(f"changes[{i}]: neither rating nor limits")
            if change.rating is not None and type(change.rating) is not type(self.rating):
                raise ValueError(f"changes[{i}]: another system is another ladder")
            after = change.from_offset

    def at(self, offset: float) -> Terms:
        """What holds at an offset that is not before `from_offset`."""
        rating, limits = self.rating, self.limits
        for change in self.changes:
            if offset < change.from_offset:
                break
            rating, limits = change.rating or rating, change.limits or limits
        return Terms(rating, limits)

    @property
    def offsets(self) -> tuple[int, ...]:
        """From where on something else holds."""
        return (self.from_offset, *(change.from_offset for change in self.changes))


DEFAULT_RATING = EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=1.0)
"""The parameters of the paper's reference implementation."""


class Ladders(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every ladder, by id; `*` is a template for all others. Without it they are rejected."""

    ladders: dict[str, Ladder]
    limits: Limits = Limits()
    """Size and depth, which are checked before the ladder is known."""

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
        """What holds for the ladder of this id at an offset, the template's where it has none of
        its own there, or None."""
        named = self.ladders.get(ladder)
        if named is None or offset < named.from_offset:
            named = self.ladders.get(TEMPLATE)
        return None if named is None else named.at(offset)

    def history(self, ladder: str) -> tuple[str, ...]:
        """How a ladder is rated from which offset on, an entry `offset:fingerprint` each."""
        named = self.ladders.get(ladder)
        offsets = sorted({0, *(named.offsets if named is not None else ())})
        held = ((offset, self.find(ladder, offset)) for offset in offsets)
        return tuple(f"{at}:{_fingerprint(terms)}" for at, terms in held if terms is not None)


def _fingerprint(terms: Terms) -> str:
    """A short hash of all that decides how rounds are rated, the same on every machine.

    Options that are newer than the first release count only where they are not the default, so that
    workers of older releases agree.
    """
    rating = for_fingerprint(terms.rating)
    limits = msgspec.to_builtins(terms.limits, order="deterministic")
    for newer in ("unknown_fields", "corrections"):
        if limits[newer] == getattr(Limits(), newer):
            del limits[newer]
    return hashlib.sha256(msgspec.json.encode((rating, limits))).hexdigest()[:16]


ANY_LADDER = Ladders(ladders={TEMPLATE: Ladder(rating=DEFAULT_RATING)})
"""What holds without a ladders file."""


def one_ladder(rating: RatingConfig) -> Ladders:
    """Every ladder rated by the same parameters, as the offline commands do."""
    return Ladders(ladders={TEMPLATE: Ladder(rating=rating)})
