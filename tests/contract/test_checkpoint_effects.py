"""Checkpoints in the store: heads and pieces, which are written and deleted one by one."""

from stream_rater.pipeline.corrections.correction_ports import (
    Checkpoints,
    DropCheckpoint,
    KeepCheckpoint,
    ReadPiece,
    WritePiece,
)
from tests.contract.rigs import ESTIMATOR, Rig

LADDERS = ("duel", "a:b{1}", "ladder of ü/%")


def test_what_is_written_is_read_by_all(rig: Rig) -> None:
    """A piece is there from its call on, a head under its name; a second one takes its place."""
    member = rig.join(ESTIMATOR)
    for ladder in LADDERS:
        assert member.do(Checkpoints(ladder)) == {}
        assert member.do(ReadPiece(ladder, "7-ab", 0)) is None
        member.do(KeepCheckpoint(ladder, "7-ab", b"half"))
        for number in range(3):
            member.do(WritePiece(ladder, "7-ab", number, b"\x00\xff" + ladder.encode() * number))
        member.do(KeepCheckpoint(ladder, "7-ab", b"whole"))
        member.do(KeepCheckpoint(ladder, "9-cd", b"\x80another"))
    other = rig.join(ESTIMATOR)
    for ladder in LADDERS:
        assert other.do(Checkpoints(ladder)) == {"7-ab": b"whole", "9-cd": b"\x80another"}
        found = [other.do(ReadPiece(ladder, "7-ab", number)) for number in range(4)]
        assert found == [*(b"\x00\xff" + ladder.encode() * number for number in range(3)), None]


def test_a_checkpoint_that_is_dropped_leaves_nothing(rig: Rig) -> None:
    """Its pieces go with it, and no others; to drop it again changes nothing."""
    member = rig.join(ESTIMATOR)
    for name in ("7-ab", "9-cd"):
        for number in range(2):
            member.do(WritePiece("duel", name, number, name.encode()))
        member.do(KeepCheckpoint("duel", name, b"head"))
    for _ in range(2):
        member.do(DropCheckpoint("duel", "7-ab", 2))
        assert member.do(Checkpoints("duel")) == {"9-cd": b"head"}
        assert [member.do(ReadPiece("duel", "7-ab", number)) for number in range(2)] == [None, None]
        assert member.do(ReadPiece("duel", "9-cd", 1)) == b"9-cd"
