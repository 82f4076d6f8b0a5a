"""Warnings about the ladders' rating parameters (`cautions` of their systems), at the start."""

import warnings
from collections.abc import Callable
from typing import Any

from stream_rater.config.ladders import Ladders


def say_cautions(ladders: Ladders, say: Callable[[str], Any]) -> None:
    """Say each warning of the start, and from now on those of Python: `caution_of_rounds`, too."""
    for text in cautions_of(ladders):
        say(text)
    warnings.showwarning = lambda message, *_, **__: say(str(message))


def cautions_of(ladders: Ladders) -> list[str]:
    """One line for each different warning. It names the first ladder that the warning is about."""
    found: dict[str, str] = {}
    for name, each in ladders.ladders.items():
        changed = [change.rating for change in each.changes if change.rating is not None]
        for rating in (each.rating, *changed):
            for text in rating.cautions():
                found.setdefault(text, f"ladder {name!r}: {text}")
    return list(found.values())
