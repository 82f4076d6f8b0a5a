"""`inspect` puts a belief into words."""

import numpy as np
import pytest

from stream_rater.cli.inspect import C, _nobody, described, kept
from stream_rater.rating.model import HEADER


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
    assert list(described(header, factors)) == [
        "believed: 1612.4 give or take 91.2, after 12 rounds",
        "before the last one: 1570.0 give or take 97.9; it was completed at "
        "2026-11-20T20:15:05Z, at offset 345 of its partition",
        "by a Gaussian factor: 1500.0 give or take 100.0, 25% of the weight",
        "and 2 performances, with their parts of the weight, the heaviest first:",
        "    1800.0  50.0%",
        "    1400.0  25.0%",
    ]


@pytest.mark.parametrize("seconds", [2**50, -(2**39)])
def test_a_time_that_no_calendar_has(seconds: int) -> None:
    """As seconds; and a belief without performances is its two numbers."""
    header = np.zeros(1, HEADER)[0]
    header["time"] = seconds
    told = list(described(header, np.zeros((0, 3))))
    assert len(told) == 2
    assert f"completed at {seconds} s" in told[1]


@pytest.mark.parametrize(
    ("retention_ms", "told"), [("604800000", "604800000 (7 days)"), ("-1", "-1 (for ever)")]
)
def test_a_topic_in_a_line(retention_ms: str, told: str) -> None:
    """By Kafka's names, to be looked up and changed by them."""
    configuration = {
        "retention.ms": retention_ms, "cleanup.policy": "delete", "min.insync.replicas": "2",
        "segment.bytes": "1",
    }  # fmt: skip
    assert kept("parts", 8, 3, configuration) == (
        "parts: partitions 8, replication.factor 3, min.insync.replicas 2, cleanup.policy delete, "
        f"retention.ms {told}"
    )


@pytest.mark.parametrize(
    ("ladder", "told"),
    [
        ("chess", "ladder 'chess' has no player 'ida' (they would be in shard 1)"),
        (
            "ches",
            "ladder 'ches' has no players: no round of it was rated; the nearest name is 'chess'",
        ),
        ("duel", "ladder 'duel' has no players: no round of it was rated"),
    ],
)
def test_who_is_not_there(ladder: str, told: str) -> None:
    """The player, or the whole ladder, with a name that may have been meant."""
    assert _nobody(ladder, "ida", 1, ["blitz", "chess"]) == told
