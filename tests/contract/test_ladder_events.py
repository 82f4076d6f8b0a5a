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


def test_what_notes_decide(rig: Rig) -> None:
    """The first note counts: a later worker finds it, and a longer history does not hold without an
    announcement. A change is seen as soon as a worker with the new file has started, and one that
    comes too late is refused, because rounds from its offset on may have been rated. If the worker
    that proposed one has died, neither file may rate from its offset on, until another worker
    starts."""
    first, second = rig.join(ESTIMATOR), rig.join(ESTIMATOR)
    assert agreed(first, a="0:x", b="5:y") == {"a": "0:x", "b": "5:y"}
    assert agreed(second, a="0:z 7:x", c="0:q") == {"a": "0:x", "c": "0:q"}
    assert agreed(first, a="0:x 9:y") == {"a": "0:x"}
    assert agreed(first) == {}
    odd = {"a:0": "1:q", "a:": "2:q", "\u00fc": "3:q"}
    assert agreed(first, **odd) == agreed(second, **odd) == odd
    old = rig.join(ESTIMATOR)
    agreed(old, d="0:x")
    start(rig, 7, d="0:x 7:y")
    assert agreed(old, d="0:x") == {"d": "0:x 7:y"}
    start(rig, 100, d="0:x 7:y")
    with pytest.raises(LadderContradiction, match="differ from offset 7 on"):
        start(rig, 8, d="0:x")
    member = rig.join(ESTIMATOR)
    agreed(member, e="0:x")
    with pytest.raises(
        LadderContradiction, match=r"change from offset 7 on comes too late, .* ends at 8"
    ):
        start(rig, 8, e="0:x 7:y")
    assert agreed(member, e="0:x") == {"e": "0:x"}
    member = rig.join(ESTIMATOR)
    agreed(member, f="0:x")
    rig.notes().write(encode_histories("proposed", {"f": ["0:x", "7:y"]}))
    assert agreed(member, f="0:x") == {"f": "0:x 7:not confirmed"}
    start(rig, 3, f="0:x")
    assert agreed(member, f="0:x") == {"f": "0:x"}
    rig.notes().write(encode_histories("proposed", {"f": ["0:x", "7:y"]}))
    start(rig, 3, f="0:x 7:y")
    assert agreed(member, f="0:x") == {"f": "0:x 7:y"}


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
