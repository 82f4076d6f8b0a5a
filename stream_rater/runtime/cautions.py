"""Warnings about the ladders' rating parameters (`cautions` of their systems), at the start."""

from stream_rater.config.ladders import Ladders


def cautions_of(ladders: Ladders) -> list[str]:
    """One line for each different warning. It names the first ladder that the warning is about."""
    found: dict[str, str] = {}
    for name, each in ladders.ladders.items():
        changed = [change.rating for change in each.changes if change.rating is not None]
        for rating in (each.rating, *changed):
            for text in rating.cautions():
                found.setdefault(text, f"ladder {name!r}: {text}")
    return list(found.values())
