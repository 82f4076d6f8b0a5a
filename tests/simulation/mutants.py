"""All mutants, one rule left out each, with the scenario that catches it (`@catches`)."""

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
