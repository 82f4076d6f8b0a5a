"""Random rounds and corrections, beside a file edited by hand; logs without an erased player."""

import json
import math
import random
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.contract.events import to_json
from stream_rater.contract.record import Record
from stream_rater.operations import rewriting
from stream_rater.operations.rewriting import Mentions, Pseudonym, changes_merge_order
from stream_rater.rating.parameters import SYSTEMS, RatingConfig
from stream_rater.replay.edited_log import MissingVerdicts, Verdicts, records_of
from stream_rater.replay.ledger import verdicts_of_log, with_verdicts
from stream_rater.replay.sequential import Replay
from tests import edited_by_hand
from tests.builders.cases import cases
from tests.builders.lines import Line, a_correction, a_round, a_seed
from tests.rounds import as_json, ranked

WINDOW = 1000


def as_lines(log: Sequence[Line | None]) -> list[bytes]:
    """A file; None is a blank line."""
    return [b"" if each is None else json.dumps(each).encode() for each in log]


def records(log: Sequence[Line | None]) -> list[Record]:
    """The records of a file."""
    return list(records_of(as_lines(log)))


def rated(
    log: Sequence[Record], ladders: Ladders = ANY_LADDER, window: int = WINDOW
) -> tuple[Replay, dict[int, str]]:
    """The replay of a log, and by offset the code of each refused correction."""
    verdicts = verdicts_of_log(lambda: log, ladders, window)
    replay = Replay(ladders, window, verdicts=verdicts)
    for _ in replay.run(log):
        pass
    return replay, {place: each.code for (_, place), each in verdicts.rejections.items()}


def beliefs(replay: Replay) -> dict[str, bytes]:
    pool = replay.pools.get("l")
    if pool is None:
        return {}
    rows = np.arange(len(pool))
    played = pool.headers(rows)["rounds"] > 0
    both = zip(pool.players(), pool.records(rows), strict=True)
    return {player: record for (player, record), is_in in zip(both, played, strict=True) if is_in}


def _plain(system: type[RatingConfig]) -> Line:
    """A configuration of the system that bears the weights of these logs."""
    found: Line = msgspec.to_builtins(system.sample())
    return found | ({"learning_rate": 0.1} if "learning_rate" in found else {})


OTHERS = [
    (_plain(system), {**_plain(system), "initial_mu": 1450.0})
    for tag, system in SYSTEMS.items()
    if tag not in {rating["system"] for rating, _ in edited_by_hand.SYSTEMS}
]
"""The other systems, each with another initial rating that a change may bring."""


def some_ladders(rng: random.Random, size: int) -> tuple[Ladders, float]:
    """A random system, which may change, and the record from which on it takes no corrections."""
    rating, other = rng.choice([*edited_by_hand.SYSTEMS, *OTHERS])
    changes: dict[int, Line] = {}
    takes_before = math.inf
    if rng.random() < 0.6:
        changes[rng.randint(1, size)] = {"rating": other}
    if rng.random() < 0.2:
        takes_before = rng.randint(1, size)
        changes.setdefault(takes_before, {})["limits"] = {"corrections": "refused"}
    in_order = [{"from_offset": offset, **change} for offset, change in sorted(changes.items())]
    ladders = {"l": {"rating": rating, "changes": in_order}}
    return msgspec.convert({"ladders": ladders}, Ladders), takes_before


@given(seed=st.integers(0, 2**32), size=st.integers(6, 50))
def test_every_correction_is_that_of_another_editor(seed: int, size: int) -> None:
    """Beliefs (of seeded and reset players, too) are equal to the byte, and all codes are equal."""
    rng = random.Random(seed)
    log = edited_by_hand.a_log(rng, size, seeds=rng.random() < 0.7)
    ladders, takes_before = some_ladders(rng, size)
    due, codes = edited_by_hand.edited(log, takes_before)
    replay, refused = rated(records(log), ladders)
    expected, none = rated(records(due), ladders)
    assert beliefs(replay) == beliefs(expected)
    assert (refused, none) == (codes, {})


def test_log_without_verdicts_is_not_rated_past_a_correction() -> None:
    """Rating without verdicts raises, so that a caller cannot forget the corrections."""
    log = records([a_correction("round-voided", round_id="r")])
    with pytest.raises(MissingVerdicts):
        list(Replay(ANY_LADDER, WINDOW).run(log))


def _seed(number: int, *players: str) -> Line:
    rows = [{"player": each, "mu": 1600.0 + 10 * i} for i, each in enumerate(players)]
    return a_seed(number, at=edited_by_hand.time_of(number), players=rows)


def _duel(number: int, *players: str) -> Line:
    return a_round(number, *players, completed_at=edited_by_hand.time_of(number))


RESET = {
    "event_type": "player-reset", "ladder": "l", "round_id": "x1", "player": "b", "sigma": 300.0,
    "at": edited_by_hand.time_of(3),
}  # fmt: skip
VOID_SEED = a_correction("round-voided", round_id="s0")


@cases("log, codes", [
    # two who met only in a seed are merged, and the row under the own name stays
    ([_seed(0, "a", "b"), a_correction("player-merged", player="a", into="b")], {}),
    ([_seed(0, "a", "b"), a_correction("player-merged", player="b", into="c")],
     {1: "unknown-player"}),
    # the first seed in the edited log counts
    ([_seed(0, "a"), _seed(1, "b"), a_correction("player-merged", player="a", into="b")], {}),
    ([_seed(0, "a"), _seed(1, "a", "b"), VOID_SEED], {}),
    # a void wakes a later seed, and an amendment of an earlier round puts one to sleep
    ([_duel(0, "a", "b"), _seed(1, "a"), a_correction("round-voided", round_id="r0")], {}),
    ([_duel(0, "a", "b"), _seed(1, "c"),
      a_correction("round-amended", round_id="r0", standings=_duel(0, "c", "b")["standings"])],
     {}),
    # a removal leaves seeds, unless it says otherwise; then the time of the seed decides
    ([_seed(0, "a"), _duel(1, "a", "b"), a_correction("player-removed", player="a")], {}),
    ([_seed(0, "a"), a_correction("player-removed", player="a")], {1: "unknown-player"}),
    ([_seed(0, "a"), a_correction("player-removed", player="a", seed=True), _seed(2, "a")], {}),
    ([_seed(5, "a"), _duel(6, "a", "b"), a_correction(
        "player-removed", player="a", seed=True, **{"from": edited_by_hand.time_of(6)})], {}),
    # what was voided is known no more, and is not voided twice; nothing can be amended
    ([_seed(0, "a"), VOID_SEED, a_correction("player-removed", player="a", seed=True)],
     {2: "unknown-player"}),
    ([_seed(0, "a"), VOID_SEED, VOID_SEED], {2: "already-voided"}),
    ([_seed(0, "a"), a_correction("round-amended", round_id="s0", standings=[])],
     {1: "bad-amend"}),
    # a reset, its void, and one of somebody who is gone by now
    ([_duel(0, "a", "b"), RESET, _duel(4, "b", "a")], {}),
    ([_duel(0, "a", "b"), RESET, a_correction("round-voided", round_id="x1")], {}),
    ([_seed(0, "b"), RESET, VOID_SEED], {}),
    ([_duel(0, "a", "b"), RESET, a_correction("player-merged", player="b", into="a")],
     {2: "bad-merge"}),
])  # fmt: skip
def test_what_corrections_make_of_seeds(log: list[Line], codes: dict[int, str]) -> None:
    """The outcome is that of another editor, and the codes are as expected."""
    due, by_hand = edited_by_hand.edited(log, math.inf)
    replay, refused = rated(records(log))
    expected, none = rated(records(due))
    assert beliefs(replay) == beliefs(expected)
    assert refused == by_hand == codes and not none


# --- published differences add up to the rating, however often the past is corrected --------------

# --- an erased player -----------------------------------------------------------------------------


def a_file(rng: random.Random, size: int, *, seeds: bool = False) -> list[bytes]:
    """A random log, with lines that are no events, and with rounds that are reported twice."""
    lines = as_lines(edited_by_hand.a_log(rng, size, seeds=seeds))
    for _ in range(size // 4):
        line = rng.choice((rng.choice(lines), b'"a b c d e f"', b'{"ladder":"l"}'))
        lines.insert(rng.randrange(len(lines)), line)
    return lines


def believed(log: Sequence[Record]) -> dict[str, bytes]:
    """The beliefs after a log, as its corrections edit it."""
    return beliefs(rated(log)[0])


def rewritten(log: Sequence[Record], to: Pseudonym) -> tuple[list[Record], Mentions]:
    """The new log, and what the old one says of the player."""

    def run(verdicts: Verdicts | None) -> tuple[list[Record], Mentions]:
        found = list(rewriting.flagged(log, ANY_LADDER, WINDOW, 0, verdicts))
        mentions = Mentions(verdicts)
        mentions.read(found, to)
        return list(rewriting.rewritten(found, {}, to)), mentions

    return with_verdicts(run, lambda: log, ANY_LADDER, WINDOW)


@settings(max_examples=80)
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
    before = believed(old)
    expected = {to.name if name == player else name: before[name] for name in before}
    assert believed(new) == expected
    again, left = rewritten(new, to)
    assert again == new
    assert not left
    assert (left.accepted, left.rejected) == (mentions.accepted, mentions.rejected)
    assert not any(f'"{player}"'.encode() in (each.value or b"") for each in new)


def merged_accounts() -> list[Record]:
    """Ann and bob were merged into zoe when both are in the last round, where ann's entry stays."""
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
    """A pseudonym that changes the order of such accounts would change ratings. It is reported."""
    old, to = merged_accounts(), Pseudonym("ann", name)
    new, mentions = rewritten(old, to)
    assert mentions.verdicts is not None and mentions.named == {"round": 2, "correction": 1}
    assert (believed(new) == believed(old)) == same
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
