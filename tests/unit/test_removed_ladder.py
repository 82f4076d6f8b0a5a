"""A ladder that was rated cannot just vanish from the file: its rounds would be rejected."""

from collections.abc import Sequence
from typing import Any

import pytest

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import TEMPLATE, Ladder, Ladders
from stream_rater.contract.corrections import SeasonStarted
from stream_rater.pipeline.corrections.edits_in_force import recorded_correction
from stream_rater.pipeline.ladder_history import (
    LadderLog,
    encode_corrections,
    encode_histories,
    encode_restated_corrections,
    objection,
)
from stream_rater.rating.parameters import EloMMR
from stream_rater.runtime.ladder_checks import check_ladders

ONE = Ladder(rating=EloMMR(weight_limit=0.2, sigma_limit=80.0))


class Notes:
    """The topic, in memory."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def read(self) -> LadderLog:
        found = LadderLog()
        for each in self.messages:
            found.read(each)
        return found

    def write(self, messages: Sequence[bytes]) -> None:
        self.messages += messages


def start(log: Any, *ladders: str) -> None:
    """A worker with these ladders in its file."""
    check_ladders(Ladders(ladders=dict.fromkeys(ladders, ONE)), log, lambda: [0])


def rated(log: Notes, *ladders: str) -> None:
    log.write(
        encode_histories("noted", dict.fromkeys(ladders, Ladders(ladders={"a": ONE}).history("a")))
    )


def test_a_start_without_a_rated_ladder_is_refused() -> None:
    """With its name and what to do."""
    log = Notes()
    rated(log, "a", "b")
    start(log, "a", "b", "new")
    with pytest.raises(BadConfiguration, match="ladder 'b' was rated and is not in the ladders"):
        start(log, "a")
    with pytest.raises(BadConfiguration, match=r"ladder 'a' \(and 1 other\) was rated"):
        start(log, "new")


def test_a_ladder_that_nobody_rated_may_go() -> None:
    """It never began; and a template rates all that are not named."""
    log = Notes()
    start(log, "a", "b")
    start(log, "a")
    rated(log, "b")
    start(log, "a", TEMPLATE)


def test_a_rebuild_lets_a_ladder_go_and_come_again() -> None:
    """By a file without it: then it is as if it had never been rated."""
    log = Notes()
    rated(log, "a", "b")
    log.write(encode_histories("restated", {"b": ()}))
    start(log, "a")
    start(log, "a", "b")
    rated(log, "b")
    assert log.read().in_force("b"), "its first round is recorded again"
    with pytest.raises(BadConfiguration, match="ladder 'b' was rated"):
        start(log, "a")


def test_other_parameters_are_reported_with_the_way_out() -> None:
    """For production, and for who only tries things."""
    reported = objection("a", ("0:x",), ("0:y",))
    assert "rebuild --replace" in reported
    assert "in development" in reported and "another STREAM_RATER_TOPIC_PREFIX" in reported


def test_notes_of_corrections_that_the_log_does_not_reach() -> None:
    """They are newer than the log of rounds, which ends at offset 0: no worker starts, until a
    rebuild has restated them."""
    log = Notes()
    rated(log, "a")
    season = SeasonStarted(ladder="a", season=1, keep=0.5, sigma=10.0)
    log.write(encode_corrections({"a": [recorded_correction(0, season, 0)]}))
    with pytest.raises(BadConfiguration, match=r"of ladder 'a' at offset 0 .* rebuild --replace"):
        start(log, "a")
    log.write(encode_restated_corrections({"a": []}))
    start(log, "a")
