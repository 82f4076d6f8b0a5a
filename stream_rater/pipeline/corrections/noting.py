"""What is noted of a correction, and whether a note is about the correction that the log holds."""

import msgspec
from msgspec import UNSET

from stream_rater.contract.corrections import Correction, RoundAmended, name_of
from stream_rater.contract.events import to_json
from stream_rater.pipeline.corrections.correction_ports import NotedCorrection
from stream_rater.pipeline.corrections.edits_in_force import correction_of
from stream_rater.rounds.corrections import names_in, round_in


def note_of(offset: int, correction: Correction, at: int) -> NotedCorrection:
    """What is noted of a correction whose record is at `offset`: all that later rounds are rated
    by, and nothing that may be of any length. `at`: where it was worked in; -1: it waits."""
    correction = msgspec.structs.replace(correction, reason="", event_type="")
    if isinstance(correction, RoundAmended):
        correction = msgspec.structs.replace(correction, standings=[], completed_at=UNSET)
    value = msgspec.Raw(to_json(correction))
    return NotedCorrection(offset, name_of(correction), value, at)


def is_about(noted: NotedCorrection, correction: Correction) -> bool:
    """Whether a note is about this correction, as far as its kind, ladder, round and players
    tell."""
    other = correction_of(noted)
    return (
        name_of(other) == name_of(correction)
        and other.ladder == correction.ladder
        and round_in(other) == round_in(correction)
        and names_in(other) == names_in(correction)
    )
