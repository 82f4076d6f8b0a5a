"""What `inspect` tells of the corrections of a ladder, by what estimators have noted of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from stream_rater.contract.corrections import Correction
from stream_rater.contract.events import shown
from stream_rater.pipeline.corrections.correction_ports import NotedCorrection
from stream_rater.pipeline.corrections.edits_in_force import APPLIED, LadderEdits, correction_of
from stream_rater.rating.seasons import seen
from stream_rater.rating.stages import RatingRule


def of_ladder(ladder: str, edits: LadderEdits) -> Iterator[str]:
    """The ladder's corrections, in the order in which they were worked in, and those that wait."""
    yield f"{shown(ladder)}: corrections that were worked in: {len(edits.noted) or 'none'}"
    for noted in edits.noted:
        together = f", by that at {noted.at}" if noted.at != noted.offset else ""
        yield f"  {noted.offset:>10} {_about(noted)}{together}"
    waiting = edits.waiting(2**63)
    yield f"corrections that wait for {APPLIED}: {len(waiting) or 'none'}"
    for noted in waiting:
        yield f"  {noted.offset:>10} {_about(noted)}"


def _about(noted: NotedCorrection) -> str:
    correction: Correction = correction_of(noted)
    names = ("round_id", "player", "into", "since", "until", "season", "keep", "sigma")
    told = [f"{name} {value}" for name in names if (value := getattr(correction, name, None))]
    reason = f" ({correction.reason})" if correction.reason else ""
    return shown(" ".join([noted.event_type, *told]) + reason)


def cause_of(edits: LadderEdits, last: int) -> str:
    """The kind of the correction at this offset, at which a belief was last changed; empty if it
    was changed by a round."""
    return next((each.event_type for each in edits.noted if each.offset == each.at == last), "")


def of_seasons(header: Any, edits: LadderEdits, rule: RatingRule | None) -> Iterator[str]:
    """In which season a belief is, and what later ones make of it. `rule`: None if it is
    unknown."""
    started = edits.last.started
    if not started:
        return
    own = int(header["season"])
    since = ", ".join(str(each.number) for each in started[own:])
    yield (
        f"season {started[-1].number}; the last round was "
        + (f"in season {started[own - 1].number}" if own else "before the first")
        + (f"; still to be drawn by season {since}" if since else "")
    )
    if since and rule is not None and header["rounds"] > 0:
        (mu,), (sigma,) = seen(rule, np.array([header]))
        yield f"drawn: {mu:.1f} give or take {sigma:.1f}"
