"""Warnings about the ladders' rating parameters, for the start of a process (`rating.cautions`)."""

from stream_rater.config.ladders import Ladders
from stream_rater.rating.cautions import cautions


def cautions_of(ladders: Ladders) -> list[str]:
    """One line for each different warning. It names the first ladder that the warning is about."""
    found: dict[str, str] = {}
    for name, each in ladders.ladders.items():
        changed = [change.rating for change in each.changes if change.rating is not None]
        for rating in (each.rating, *changed):
            for text in cautions(rating):
                found.setdefault(text, f"ladder {name!r}: {text}")
    return list(found.values())
