"""The events that a correction publishes for its players."""

import msgspec
import numpy as np

from stream_rater.contract.events import CorrectionCause, RatingChanged, rating_changed_from_json
from stream_rater.pipeline.ports import Event
from stream_rater.pipeline.updater.corrected_changes import correction_events
from stream_rater.rating.model import HEADER, Table
from stream_rater.rating.parameters import EloMMR
from stream_rater.rating.stages import RatingRule, ratings, rule_of
from tests.builders.cases import cases
from tests.builders.machines import RULE

VOIDED = CorrectionCause(cause="round-voided", offset=40, round_id="r-1")
TIME = "2026-11-25T16:00:00Z"
PLAYERS = ["ann", "b:b", "cy", "%"]
EVERYBODY = np.ones(len(PLAYERS), np.bool_)


def headers() -> Table:
    """Of PLAYERS: one keeps all rounds but one, one has just enough, one too few, one none."""
    header = np.zeros(len(PLAYERS), HEADER)
    header["rounds"] = [11, RULE.provisional_rounds, RULE.provisional_rounds - 1, 0]
    header["last"], header["time"] = 40, 1000
    header["mu"], header["sigma"] = [1612.5, 1500.25, 1400.0, 1500.0], [91.0, 92.0, 93.0, 350.0]
    header["previous_mu"], header["previous_sigma"] = [1700.0, 1500.25, 1380.0, 1520.0], 95.0
    return header


def published(
    cause: CorrectionCause = VOIDED, chosen: np.ndarray = EVERYBODY, rule: RatingRule = RULE,
    ladder: str = "l:1",
) -> tuple[list[Event], list[RatingChanged]]:  # fmt: skip
    """The events as they travel, and as they are read."""
    events = correction_events(3, ladder, cause, TIME, rule, PLAYERS, headers(), chosen)
    return events, [rating_changed_from_json(each.value) for each in events]


def test_a_whole_event() -> None:
    """Every field is checked: the values last published, the new ones, and the cause."""
    (event, *_), (changed, *_) = published()
    shown, before = RULE.rating(1612.5, 91.0), RULE.rating(1700.0, 95.0)
    assert changed == RatingChanged(
        event_id="l%3A1:correction:40:ann", ladder="l:1", player="ann", round_id="r-1",
        completed_at=TIME, rank=None, mu=1612.5, sigma=91.0, previous_mu=1700.0,
        previous_sigma=95.0, performance=None, rating=shown, previous_rating=before, rounds=11,
        provisional=False, offset=40, correction=VOIDED,
    )  # fmt: skip
    assert event == Event(3, b"l%3A1:ann", event.value, b"l%3A1:correction:40:ann", TIME)
    assert event.trace is None


def test_whose_events_are_published() -> None:
    """Those who are chosen, in order, each under the own key. Who has too few rounds left is
    provisional again, and no id is that of a round, whatever rounds and players are called."""
    events, changed = published(chosen=np.array([False, True, False, True]))
    assert [each.player for each in changed] == ["b:b", "%"]
    assert [each.key for each in events] == [b"l%3A1:b%3Ab", b"l%3A1:%25"]
    assert published(chosen=~EVERYBODY) == ([], [])
    _, changed = published()
    assert [each.rounds for each in changed] == headers()["rounds"].tolist()
    assert [each.provisional for each in changed] == [False, False, True, True]
    ids = {each.event_id for each in published(ladder="l")[0]}
    ids |= {each.event_id for each in published(msgspec.structs.replace(VOIDED, offset=4))[0]}
    assert len(ids) == 2 * len(PLAYERS)
    assert all(each.count(b":") == 3 for each in ids)


@cases("floor", [None, 1450.0])
def test_ratings_are_those_of_rounds(floor: float | None) -> None:
    """By the ladder's rule, bit for bit: a later round's event begins where this one ends."""
    rule = rule_of(EloMMR(weight_limit=0.2, sigma_limit=80.0, floor=floor))
    _, changed = published(rule=rule)
    of, header = np.zeros(len(PLAYERS), np.int64), headers()
    for prefix in ("", "previous_"):
        shown = ratings([rule], of, header[f"{prefix}mu"], header[f"{prefix}sigma"]).tolist()
        assert [getattr(each, f"{prefix}rating") for each in changed] == shown
