"""All mutants: the protocol with one rule left out at a time, each with the scenario that catches
it. `@catches` registers both where the scenario is, in these modules."""

from . import (  # noqa: F401
    agreement,
    cached,
    corrected,
    estimating,
    lost,
    rebuilt,
    record_cache,
    seeded,
    updating,
)
from .registry import MUTANTS, caught, play

__all__ = ["MUTANTS", "caught", "play"]
