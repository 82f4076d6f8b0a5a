"""An erased player: the renamed log gives the renamed beliefs."""

import random
from collections.abc import Sequence

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.events import to_json
from stream_rater.contract.record import Record
from stream_rater.operations.rewriting import (
    AcceptedRecords,
    LogRewriter,
    Mentions,
    Pseudonym,
    changes_merge_order,
)
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import Verdicts, batches_of, records_of
from stream_rater.replay.sequential import Replay
from tests import edited_by_hand
from tests.builders.cases import cases
from tests.property.test_corrections import WINDOW, as_lines, beliefs
from tests.rounds import as_json, ranked


def a_file(rng: random.Random, size: int, *, seeds: bool = False) -> list[bytes]:
    """Random rounds and corrections; some lines are none, and some rounds are reported twice. With
    `seeds`, there are seeds and resets, too."""
    lines = as_lines(edited_by_hand.a_log(rng, size, seeds=seeds))
    for _ in range(size // 4):
        line = rng.choice((rng.choice(lines), b'"a b c d e f"', b'{"ladder":"l"}'))
        lines.insert(rng.randrange(len(lines)), line)
    return lines


def replayed(log: Sequence[Record]) -> Replay:
    """The replay of a log, as its corrections edit it."""

    def run(verdicts: Verdicts | None) -> Replay:
        replay = Replay(ANY_LADDER, WINDOW, verdicts=verdicts)
        for _ in replay.run(log):
            pass
        return replay

    return with_verdicts(run, lambda: log, ANY_LADDER, WINDOW)


def rewritten(log: Sequence[Record], to: Pseudonym) -> tuple[list[Record], Mentions]:
    """The new log, and what the old one says of the player."""

    def run(verdicts: Verdicts | None) -> tuple[list[Record], Mentions]:
        accepted, mentions = AcceptedRecords(ANY_LADDER, WINDOW, 0, verdicts), Mentions(verdicts)
        rewriting, found = LogRewriter(to), list[Record]()
        for some in batches_of(log):
            taken = accepted.of(some)
            mentions.read(some, taken, to)
            found += rewriting.feed(some, taken)
        return found, mentions

    return with_verdicts(run, lambda: log, ANY_LADDER, WINDOW)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32), size=st.integers(4, 40),
    player=st.sampled_from(edited_by_hand.PLAYERS),
    name=st.sampled_from(["", "bb", "dd", "x"]), seeds=st.booleans(),
)  # fmt: skip
def test_the_renamed_log_gives_the_renamed_beliefs(
    *, seed: int, size: int, player: str, name: str, seeds: bool
) -> None:
    """The beliefs are equal to the byte, offsets included. Each accepted record is accepted again
    at the same offset, and no record contains the id. Pseudonyms that change the order of merged
    accounts are left out here: `erase` reports them before it writes."""
    to = Pseudonym(player, name or f"{player}-erased")
    old = list(records_of(a_file(random.Random(seed), size, seeds=seeds)))
    new, mentions = rewritten(old, to)
    assume(mentions.verdicts is None or changes_merge_order(mentions.verdicts, to) is None)
    assert [each.offset for each in new] == [each.offset for each in old]
    expected = {
        to.name if name == player else name: b for name, b in beliefs(replayed(old)).items()
    }
    assert beliefs(replayed(new)) == expected
    again, left = rewritten(new, to)
    assert again == new
    assert not left
    assert (left.accepted, left.rejected) == (mentions.accepted, mentions.rejected)
    assert not any(f'"{player}"'.encode() in (each.value or b"") for each in new)


def merged_accounts() -> list[Record]:
    """Of ann and bob, who are zoe by then, both stand in the last round: ann's entry stays."""
    lobbies = ["ann", "cy"], ["bob", "cy"], ["zoe", "cy"], ["bob", "cy", "ann"]
    rounds = [
        as_json(*ranked(range(1, len(names) + 1), names), round_id=f"r{i}", ladder="l")
        for i, names in enumerate(lobbies)
    ]
    merged = [
        to_json({"event_type": "player-merged", "ladder": "l", "player": name, "into": "zoe"})
        for name in ("ann", "bob")
    ]
    return list(records_of([*rounds[:3], *merged, rounds[3]]))


@cases("name, same", [("az", True), ("c", False)])
def test_the_lesser_name_of_merged_accounts_decides(name: str, same: bool) -> None:
    """A pseudonym that changes the order of merged accounts would change ratings. It is
    reported."""
    old, to = merged_accounts(), Pseudonym("ann", name)
    new, mentions = rewritten(old, to)
    assert mentions.verdicts is not None and mentions.rounds == 2 and mentions.corrections == 1
    assert (beliefs(replayed(new)) == beliefs(replayed(old))) == same
    assert changes_merge_order(mentions.verdicts, to) == (None if same else ("l", "bob"))


def test_a_refused_correction_leaves_an_empty_record() -> None:
    """Its texts may contain the id, and it changes no rating."""
    lobby = as_json(*ranked([1, 2], ["ann", "bob"]), round_id="r1", ladder="l")
    voids = [
        to_json({"event_type": "round-voided", "ladder": "l", "round_id": each, "reason": "ann"})
        for each in ("r9", "r1")
    ]
    new, mentions = rewritten(list(records_of([lobby, *voids])), Pseudonym("ann", "zoe"))
    assert [each.value is None for each in new] == [False, True, False]
    assert (mentions.accepted, mentions.rejected) == (2, 1)
