"""Imports all mutants, each with one rule left out and the scenario that catches it."""

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
