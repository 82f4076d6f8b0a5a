"""The notes about the ladders' parameters are the same for all workers."""

import uuid

import pytest

from stream_rater.contract.errors import LogTrouble
from stream_rater.pipeline.ladder_history import LadderContradiction, announce, encode_histories
from stream_rater.pipeline.ports import Agree
from tests.contract.rigs import ESTIMATOR, KafkaRig, Member, Rig


def agreed(member: Member, **own: str) -> dict[str, str]:
    """The histories that rounds may be rated by if a worker's file says this; entries as words."""
    found = member.do(Agree({ladder: words.split() for ladder, words in own.items()}))
    return {ladder: " ".join(entries) for ladder, entries in found.items()}


def start(rig: Rig, end: int, **own: str) -> None:
    """Announce this file, as a worker does at its start, if the rounds' partition ends there."""
    announce(
        {each: words.split() for each, words in own.items()},
        rig.notes(),
        lambda _: end,
        uuid.uuid4().hex,
    )


def test_the_first_note_counts(rig: Rig) -> None:
    """A later worker finds the first note, and a longer history does not hold without an
    announcement."""
    first, second = rig.join(ESTIMATOR), rig.join(ESTIMATOR)
    assert agreed(first, a="0:x", b="5:y") == {"a": "0:x", "b": "5:y"}
    assert agreed(second, a="0:z 7:x", c="0:q") == {"a": "0:x", "c": "0:q"}
    assert agreed(first, a="0:x 9:y") == {"a": "0:x"}
    assert agreed(first) == {}
    odd = {"a:0": "1:q", "a:": "2:q", "\u00fc": "3:q"}
    assert agreed(first, **odd) == agreed(second, **odd) == odd


def test_a_change_is_seen_by_who_was_there_before(rig: Rig) -> None:
    """A worker that was there before sees the change as soon as a worker with the new file has
    started."""
    old = rig.join(ESTIMATOR)
    agreed(old, a="0:x")
    start(rig, 7, a="0:x 7:y")
    assert agreed(old, a="0:x") == {"a": "0:x 7:y"}
    start(rig, 100, a="0:x 7:y")
    with pytest.raises(LadderContradiction, match="differ from offset 7 on"):
        start(rig, 8, a="0:x")


def test_a_change_that_comes_too_late_is_no_change(rig: Rig) -> None:
    """It is refused, because rounds from its offset on may have been rated already."""
    member = rig.join(ESTIMATOR)
    agreed(member, a="0:x")
    with pytest.raises(
        LadderContradiction, match=r"change from offset 7 on comes too late, .* ends at 8"
    ):
        start(rig, 8, a="0:x 7:y")
    assert agreed(member, a="0:x") == {"a": "0:x"}


def test_rounds_wait_for_a_change_that_is_not_decided(rig: Rig) -> None:
    """The worker that proposed it has died. Neither file may rate from its offset on, until another
    worker starts."""
    member = rig.join(ESTIMATOR)
    agreed(member, a="0:x")
    rig.notes().write(encode_histories("proposed", {"a": ["0:x", "7:y"]}))
    assert agreed(member, a="0:x") == {"a": "0:x 7:not confirmed"}
    start(rig, 3, a="0:x")
    assert agreed(member, a="0:x") == {"a": "0:x"}
    rig.notes().write(encode_histories("proposed", {"a": ["0:x", "7:y"]}))
    start(rig, 3, a="0:x 7:y")
    assert agreed(member, a="0:x") == {"a": "0:x 7:y"}


@pytest.mark.integration
def test_a_note_of_a_newer_release_is_trouble(kafka_rig: KafkaRig) -> None:
    """It is not guessed. A record that is no note of any release is ignored."""
    member = kafka_rig.join(ESTIMATOR)
    log = kafka_rig.notes()
    log.write([b"", b"litter", b"[]", b"{}", *encode_histories("noted", {"a": ["0:x"]})])
    assert agreed(member, a="0:z") == {"a": "0:x"}
    log.write([b'{"kind": "later", "histories": {}}'])
    with pytest.raises(LogTrouble, match=r"ladders-noted: offset 5: a note of kind 'later'"):
        agreed(member, a="0:z")
