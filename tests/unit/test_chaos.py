"""What chaos counts: ratings that are lost, doubled or wrong would be noticed."""

import pytest
from msgspec.structs import replace

from stream_rater.contract.events import CorrectionCause, RatingChanged
from tests.chaos.corrected import corrected_tally, values_of
from tests.chaos.crew import Violation, why_ended
from tests.chaos.season import Tally, tally

DUE = {("l", "p"): {"r1": 1, "r2": 2, "r3": 3}, ("l", "q"): {"r3": 1}}
"""Three expected rounds of one player, and one of another."""


def change(
    number: int, player: str = "p", *, of: int = 0, event_id: str = "", mu: float = 0.0
) -> RatingChanged:
    """The event of a player after so many rounds, each of which gains a point."""
    round_id = f"r{of or number}"
    return RatingChanged(
        event_id=event_id or f"l:{round_id}:{player}", ladder="l", player=player,
        round_id=round_id, completed_at="", rank=1, mu=mu or 1000.0 + number, sigma=9.0 - number,
        previous_mu=999.0 + number, previous_sigma=10.0 - number, performance=0.0, rating=0.0,
        previous_rating=0.0, rounds=number, provisional=False, offset=of or number,
    )  # fmt: skip


ALL = [change(1), change(2), change(3), change(1, "q", of=3)]
PUBLISHED = {
    "all": (ALL, (0, 0, 0)),
    "nothing": ([], (4, 0, 0)),
    "the last one not": ([*ALL[:2], ALL[3]], (1, 0, 0)),
    "one in between not": ([ALL[0], *ALL[2:]], (1, 0, 1)),  # and a gap in what is believed
    "one twice": ([*ALL, ALL[1]], (0, 1, 0)),
    "out of order": ([ALL[0], ALL[2], ALL[1], ALL[3]], (0, 0, 2)),
    "another's round": ([*ALL[:3], change(1, "q", of=1)], (1, 0, 1)),
    "a round that nobody played": ([*ALL, change(4)], (0, 0, 1)),
    "two rounds exchanged": ([change(1, of=2), change(2, of=1), *ALL[2:]], (0, 0, 3)),
    "another's id": ([*ALL[:3], change(1, "q", of=3, event_id="l:r3:p")], (0, 0, 1)),
    "another rating": ([change(1, mu=1001.5), *ALL[1:]], (0, 0, 1)),
}
"""Published changes, and how many are lost, doubled and wrong."""


def counts(found: Tally) -> tuple[int, int, int]:
    return found.lost, found.doubled, len(found.mistakes)


def test_what_is_lost_doubled_and_wrong() -> None:
    found = {case: counts(tally(DUE, changes)) for case, (changes, _) in PUBLISHED.items()}
    assert found == {case: expected for case, (_, expected) in PUBLISHED.items()}


def corrected(number: int, offset: int, *, mu: float, before: float) -> RatingChanged:
    """The event of a correction of a round of p, published after this many rounds."""
    cause = CorrectionCause(cause="round-voided", offset=offset, round_id="r1")
    return replace(
        change(number), event_id=f"l:correction:{offset}:p", round_id="r1", rank=None,
        performance=None, mu=mu, previous_mu=before, offset=offset, correction=cause,
        previous_sigma=9.0 - number,
    )  # fmt: skip


EDITED = [ALL[0], ALL[1], corrected(2, 5, mu=900.0, before=1002.0),
          replace(change(3), previous_mu=900.0, offset=6)]  # fmt: skip
VOIDED = EDITED[2]
PUBLISHED_CORRECTED = {
    "all": (EDITED, (0, 0, 0)),
    "the correction not": ([*EDITED[:2], EDITED[3]], (1, 0, 1)),  # and a gap in what is believed
    "the correction twice": ([*EDITED, VOIDED], (0, 1, 0)),
    "the correction as a round": ([*EDITED[:2], replace(VOIDED, correction=None), EDITED[3]],
                                  (0, 0, 2)),
    "another correction": ([*EDITED[:3], corrected(2, 7, mu=901.0, before=900.0), EDITED[3]],
                           (0, 0, 1)),
    "a round that does not go on from it": ([*EDITED[:3], replace(EDITED[3], previous_mu=1002.0)],
                                            (0, 0, 2)),
}  # fmt: skip
"""Published changes of p, among them a correction's, and how many are lost, doubled and wrong."""


def test_what_of_corrections_is_lost_doubled_and_wrong() -> None:
    due = {("l", "p"): [values_of(each) for each in EDITED]}
    cases = PUBLISHED_CORRECTED.items()
    found = {case: counts(corrected_tally(due, changes)) for case, (changes, _) in cases}
    assert found == {case: expected for case, (_, expected) in cases}


HANGING_CALL = "stream-rater: updater: in a call that does not return\n"


def test_why_a_worker_ended() -> None:
    """The last line says why. A traceback, a signal and an unknown reason are violations."""
    for log in (HANGING_CALL, "Timeout (0:00:09.500000)!\nThread 0x7f (most recent call first):\n"):
        assert why_ended(1, "{}\n" + log) == "a call that does not return"
    for code, log in (
        (1, "Traceback\n" + HANGING_CALL), (-6, HANGING_CALL), (0, HANGING_CALL), (1, ""),
        (1, "{}\nno"),
    ):  # fmt: skip
        with pytest.raises(Violation, match="a worker ended"):
            why_ended(code, log)
