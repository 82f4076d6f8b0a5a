"""What a rebuild takes from correction parts: the records that the store had taken."""

import msgspec
import pytest

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.ladders import DEFAULT_RATING
from stream_rater.contract.record import Player, Record
from stream_rater.operations.cutoff import Cutoff
from stream_rater.pipeline.parts import correction_parts
from stream_rater.pipeline.parts.correction_parts import CORRECTION, CorrectionPart
from stream_rater.pipeline.parts.schema import OLDEST_KERNEL, UnknownPart
from stream_rater.rating import stages

PLAYER: Player = ("l", "p")
PART = CorrectionPart(
    version=CORRECTION, kernel=OLDEST_KERNEL, shards=1, offset=5, ladder="l", cause="round-voided",
    round_id="r", completed_at="", rule=stages.rule_of(DEFAULT_RATING), threshold=0.5,
    players=["p"], records=[b"first"],
)  # fmt: skip


def corrected_of(*parts: CorrectionPart, waits: int = 0) -> dict[Player, tuple[int, bytes]]:
    """What the cut-off knows after these parts, of which the last ones wait to be applied."""
    cutoff = Cutoff({0: len(parts) - waits}, {0: 0}, 1)
    cutoff.add([Record(0, i, correction_parts.encode(part)) for i, part in enumerate(parts)])
    return cutoff.corrected


def test_the_first_record_of_a_correction_counts() -> None:
    """A successor of another kernel version sent the correction's parts once more. They were not
    fresh."""
    again = msgspec.structs.replace(PART, records=[b"again"])
    assert corrected_of(PART, again) == {PLAYER: (5, b"first")}


def test_a_later_correction_counts_though_an_earlier_one_comes_again() -> None:
    """From a worker that was paused."""
    later = msgspec.structs.replace(PART, offset=9, records=[b"later"])
    assert corrected_of(PART, later, PART) == {PLAYER: (9, b"later")}


def test_correction_parts_of_a_kernel_that_is_no_longer_applied_are_read() -> None:
    """They are in the log for days after an upgrade, as parts of rounds are; a rebuild needs to
    know of them, not to compute with them."""
    old = msgspec.structs.replace(PART, kernel=OLDEST_KERNEL - 1)
    assert corrected_of(old) == {PLAYER: (5, b"first")}


def test_a_newer_kernels_parts_are_read_only_if_they_were_applied() -> None:
    """To go back to an older release, its rebuild must read what the newer one has applied. What
    waits would stop its updaters."""
    newer = msgspec.structs.replace(PART, kernel=KERNEL_VERSION + 1)
    assert corrected_of(newer) == {PLAYER: (5, b"first")}
    with pytest.raises(UnknownPart, match="waits for a worker of the newer release"):
        corrected_of(newer, waits=1)
