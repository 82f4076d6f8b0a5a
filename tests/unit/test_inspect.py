"""`inspect` puts a belief into words."""

import msgspec
import numpy as np

from stream_rater.contract.corrections import (
    Correction,
    CorrectionsApplied,
    PlayerRemoved,
    RoundVoided,
    SeasonStarted,
    name_of,
)
from stream_rater.contract.events import CorrectionCause, RatingChanged, to_json
from stream_rater.operations import inspect
from stream_rater.operations.inspect import _unknown_player, belief_lines, seed_in, topic_line
from stream_rater.pipeline.corrections.correction_ports import RecordedCorrection
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.rating.elo_mmr.performance import C
from stream_rater.rating.model import HEADER
from stream_rater.rating.parameters import EloMMR
from stream_rater.rating.stages import rule_of


def test_a_belief_in_words() -> None:
    """Its factors by weight, which add up to all of it."""
    header = np.zeros(1, HEADER)[0]
    header["rounds"], header["last"], header["count"] = 12, 345, 2
    header["time"] = 1_795_205_705
    header["mu"], header["sigma"] = 1612.44, 91.2
    header["previous_mu"], header["previous_sigma"] = 1570.0, 97.9
    header["center"], header["precision"], header["scale"] = 1500.0, 0.0001, 1.0
    a = 0.01
    weights = np.array([0.0001, 0.0002])
    factors = np.array([[1400.0, a, 0.0], [1800.0, a, 0.0], [0.0, 0.0, 0.0]])
    factors[:2, 2] = weights * C**2 / (2.0 * a)
    assert list(belief_lines(header, factors)) == [
        "believed: 1612.4 give or take 91.2, after 12 rounds",
        "before the last one: 1570.0 give or take 97.9; it was completed at "
        "2026-11-20T20:15:05Z, at offset 345 of its partition",
        "by a Gaussian factor: 1500.0 give or take 100.0, 25% of the weight",
        "and 2 performances, with their parts of the weight, the heaviest first:",
        "    1800.0  50.0%",
        "    1400.0  25.0%",
    ]


def test_a_corrected_belief_in_words() -> None:
    """A correction changed it last. A small change is not published yet."""
    header = np.zeros(1, HEADER)[0]
    header["rounds"], header["last"], header["untold"] = 11, 345, 1
    header["time"] = 1_795_205_705
    header["mu"], header["sigma"] = 1612.44, 91.2
    header["previous_mu"], header["previous_sigma"] = 1612.3, 91.3
    none = np.zeros((0, 3))
    assert list(belief_lines(header, none, "round-voided")) == [
        "believed: 1612.4 give or take 91.2, after 11 rounds",
        "changed last by round-voided, at offset 345 of its partition; last published before it: "
        "1612.3 give or take 91.3",
        "this change was too small for an event of its own: the next event includes it",
        "the last round was completed at 2026-11-20T20:15:05Z",
    ]
    header["rounds"] = 0
    assert len(list(belief_lines(header, none, "round-voided"))) == 3


def test_a_seeded_belief_in_words() -> None:
    """It has the rounds of the seed, and no performance. A reset keeps the time of the last
    round."""
    header = np.zeros(1, HEADER)[0]
    header["rounds"], header["last"], header["time"] = 70, 345, 1_795_205_705
    header["mu"], header["sigma"] = 1612.44, 91.2
    header["previous_mu"], header["previous_sigma"] = 1500.0, 350.0
    none = np.zeros((0, 3))
    assert list(belief_lines(header, none, "players-seeded")) == [
        "believed: 1612.4 give or take 91.2, after 70 rounds",
        "given by a seed, at offset 345 of its partition; it counts from 2026-11-20T20:15:05Z",
    ]
    assert list(belief_lines(header, none, "player-reset"))[1:] == [
        "changed last by player-reset, at offset 345 of its partition; last published before it: "
        "1500.0 give or take 350.0",
        "the last round was completed at 2026-11-20T20:15:05Z",
    ]


def an_event(cause: CorrectionCause | None) -> bytes:
    return to_json(
        RatingChanged(
            event_id="e", ladder="l", player="p", round_id="", completed_at="", rank=None, mu=1.0,
            sigma=1.0, previous_mu=1.0, previous_sigma=1.0, performance=None, rating=1.0,
            previous_rating=1.0, rounds=1, provisional=False, offset=7, correction=cause,
        )
    )  # fmt: skip


def test_a_seed_is_known_by_the_newest_event() -> None:
    """Corrections are not seeds, and an erased event says nothing."""
    seed, void = (
        CorrectionCause(cause=each, offset=7) for each in ("players-seeded", "round-voided")
    )
    assert seed_in([an_event(void), an_event(seed)]) == seed
    for events in ([], [None], [an_event(seed), None], [an_event(void)], [an_event(None)]):
        assert seed_in(events) is None


def recorded(offset: int, at: int, correction: Correction) -> RecordedCorrection:
    """The record of a correction that was applied at an offset. -1: it is deferred."""
    return RecordedCorrection(offset, name_of(correction), msgspec.Raw(to_json(correction)), at)


EDITS = LadderEdits(
    [
        recorded(3, -1, RoundVoided(ladder="chess", round_id="r1", batched=True)),
        recorded(3, 9, RoundVoided(ladder="chess", round_id="r1", batched=True)),
        recorded(9, 9, CorrectionsApplied(ladder="chess")),
        recorded(12, 12, SeasonStarted(ladder="chess", season=2, keep=0.5, sigma=200.0)),
        recorded(13, -1, PlayerRemoved(ladder="chess", player="eve", reason="bot", batched=True)),
    ]
)


def test_the_corrections_of_a_ladder() -> None:
    """Applied corrections are shown in order, and so are the deferred ones."""
    assert list(inspect.corrections_of("chess", EDITS)) == [
        "chess: corrections applied: 3",
        "           3 round-voided round_id r1, by that at 9",
        "           9 corrections-applied",
        "          12 season-started season 2 keep 0.5 sigma 200.0",
        "corrections that wait for corrections-applied: 1",
        "          13 player-removed player eve (bot)",
    ]
    assert list(inspect.corrections_of("go", LadderEdits())) == [
        "go: corrections applied: none",
        "corrections that wait for corrections-applied: none",
    ]


def test_what_changed_a_belief_last() -> None:
    """A correction, or a round. One that waited has changed nothing at its own place."""
    causes = [inspect.cause_of(EDITS, last) for last in (3, 9, 10)]
    assert causes == ["", "corrections-applied", ""]


def test_the_season_of_a_belief() -> None:
    """The lines name the seasons that are still to be drawn, and the mu and sigma after them."""
    header = np.zeros(1, HEADER)[0]
    header["version"], header["rounds"] = 1, 5
    header["mu"], header["sigma"] = 1700.0, 90.0
    rule = rule_of(EloMMR(weight_limit=0.2, sigma_limit=80.0), EDITS.last.started)
    assert list(inspect.seasons_of(header, EDITS, rule)) == [
        "season 2; the last round was before the first; still to be drawn by season 2",
        "drawn: 1600.0 give or take 200.0",
    ]
    header["season"] = 1
    assert list(inspect.seasons_of(header, EDITS, rule)) == [
        "season 2; the last round was in season 2"
    ]
    assert list(inspect.seasons_of(header, LadderEdits(), rule)) == []


def test_a_time_that_no_calendar_has() -> None:
    """As seconds; and a belief without performances is its two numbers."""
    for seconds in (2**50, -(2**39)):
        header = np.zeros(1, HEADER)[0]
        header["time"] = seconds
        printed = list(belief_lines(header, np.zeros((0, 3))))
        assert len(printed) == 2
        assert f"completed at {seconds} s" in printed[1]


def test_a_topic_in_a_line() -> None:
    """By Kafka's names, to be looked up and changed by them."""
    for kept, printed in (("604800000", "604800000 (7 days)"), ("-1", "-1 (for ever)")):
        configuration = {
            "retention.ms": kept, "cleanup.policy": "delete", "min.insync.replicas": "2",
            "segment.bytes": "1",
        }  # fmt: skip
        assert topic_line("parts", 8, 3, configuration) == (
            "parts: partitions 8, replication.factor 3, min.insync.replicas 2, cleanup.policy "
            f"delete, retention.ms {printed}"
        )


def test_who_is_not_there() -> None:
    """The player, or the whole ladder, with a name that may have been meant."""
    there = ["blitz", "chess"]
    found = [_unknown_player(each, "ida", 1, there) for each in ("chess", "ches", "duel")]
    assert found == [
        "ladder 'chess' has no player 'ida' (they would be in shard 1)",
        "ladder 'ches' has no players: no round of it was rated; the nearest name is 'chess'",
        "ladder 'duel' has no players: no round of it was rated",
    ]
