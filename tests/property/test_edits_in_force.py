"""Which edits hold at each offset, beside lists that are copied for every note."""

import random
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.contract.corrections import (
    Correction,
    PlayerMerged,
    PlayerRemoved,
    SeasonStarted,
    name_of,
)
from stream_rater.contract.events import to_json
from stream_rater.pipeline.corrections.edits_in_force import EditsOfLadders, LadderEdits
from stream_rater.pipeline.ports import RecordedCorrection
from stream_rater.rating.parameters import Elo
from stream_rater.replay.edits import NO_EDITS, Edits, EntryEdit, EntryEdits, edited
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.correction_records import FIRST, LAST, Span, span_of
from tests.rounds import ranked, read

NAMES = "abcdefgh"
SPANS = [(None, None), ("2026-01-02T00:00:00Z", None), (None, "2026-01-03T00:00:00Z")]


def note(correction: Correction, offset: int, at: int) -> RecordedCorrection:
    return RecordedCorrection(offset, name_of(correction), msgspec.Raw(to_json(correction)), at)


def a_correction(rng: random.Random) -> msgspec.Struct:
    one, other = rng.sample(NAMES, 2)
    if (chance := rng.random()) < 0.5:
        since, until = rng.choice(SPANS)
        return PlayerRemoved(ladder="l", player=one, since=since, until=until)
    if chance < 0.9:
        return PlayerMerged(ladder="l", player=one, into=other)
    return SeasonStarted(ladder="l", season=rng.randint(1, 9), keep=0.5, sigma=1.0)


def with_one_more(
    entries: Mapping[str, EntryEdit], correction: msgspec.Struct
) -> Mapping[str, EntryEdit]:
    """The rule in plain terms: all names that are the player's by now get another edit."""
    if isinstance(correction, SeasonStarted):
        return entries
    assert isinstance(correction, PlayerRemoved | PlayerMerged)
    player = correction.player
    names = {name for name, edit in entries.items() if edit.player == player}
    names |= set() if player in entries else {player}
    found = dict(entries)
    for name in names:
        edit = entries.get(name, EntryEdit(name))
        if isinstance(correction, PlayerRemoved):
            found[name] = edit._replace(removed=(*edit.removed, span_of(correction)))
        else:
            found[name] = edit._replace(player=correction.into)
    return found


@given(seed=st.integers(0, 2**32), size=st.integers(0, 30))
def test_at_every_offset_the_edits_of_the_notes_before_hold(seed: int, size: int) -> None:
    """Also if asked for in any order, while notes come, and where several have one offset."""
    rng, edits, stored = random.Random(seed), LadderEdits(), EditsOfLadders()
    notes, at, entries = list[RecordedCorrection](), 0, dict[str, EntryEdit]()
    expected: list[tuple[int, Mapping[str, EntryEdit], int]] = [(-1, {}, 0)]
    """From after which offset on; the entries, and how many seasons have started."""
    for offset in range(0, 10 * size, 10):
        correction: Any = a_correction(rng)
        at = max(at, offset + rng.choice([0, 0, 30]))
        entries = dict(with_one_more(entries, correction))
        expected.append((at, entries, expected[-1][2] + isinstance(correction, SeasonStarted)))
        notes.append(note(correction, offset, at))
        edits.add(notes[-1:])
        assert stored.of("l", {"l": notes}).last.entries == entries
        for asked in rng.sample(range(at + 50), 3):
            _, right, seasons = [each for each in expected if each[0] < asked][-1]
            found = edits.of(asked)
            assert found.entries == right and found.entries.keys() == right.keys()
            assert len(found.seasons) == seasons
            for name in NAMES:
                assert sorted(found.names_of(name)) == sorted(
                    [n for n, edit in right.items() if edit.player == name]
                    + ([] if name in right else [name])
                )


def test_an_index_that_reads_other_notes_begins_again() -> None:
    """The notes of a ladder may be another list than the one that was read before."""
    stored = EditsOfLadders()
    removed, other = (PlayerRemoved(ladder="l", player=each) for each in "ab")
    assert list(stored.of("l", {"l": [note(removed, 0, 0)]}).last.entries) == ["a"]
    assert list(stored.of("l", {"l": [note(other, 0, 0)]}).last.entries) == ["b"]
    assert stored.of("m", {}).last == NO_EDITS


def assert_in_proportion(make: Callable[[int], object], few: int) -> None:
    """What is made of four times as much takes about four times the memory."""
    stored = list[int]()
    for count in (few, 4 * few):
        tracemalloc.start()
        try:
            kept = make(count)
            stored.append(tracemalloc.get_traced_memory()[0])
            del kept
        finally:
            tracemalloc.stop()
    assert stored[1] < 6 * stored[0]  # with the square it would be 16 times


def test_notes_take_memory_in_proportion() -> None:
    """Each removal has its own offset, and rounds between two are rated with the earlier ones."""

    def wave(players: int) -> LadderEdits:
        edits = LadderEdits()
        for i in range(players):
            edits.add([note(PlayerRemoved(ladder="l", player=f"p-{i:06}"), 10 * i, 10 * i)])
            if not i % 100:
                assert f"p-{i:06}" in edits.of(10 * i + 5).entries
        return edits

    assert_in_proportion(wave, 5_000)


def test_one_player_may_be_removed_in_many_spans() -> None:
    """The notes of one player take memory in proportion, too, and all of them hold."""

    def spans(count: int) -> EntryEdits:
        entries = EntryEdits()
        for i in range(count):
            entries.add("ann", Span(2 * i, 2 * i + 1))
        return entries

    assert_in_proportion(spans, 2_000)
    edit = spans(100).now()["ann"]
    assert [edit.is_removed(time) for time in (0, 1, 198, 199)] == [True, False, True, False]
    assert span_of(PlayerRemoved(ladder="l", player="ann")) == Span(FIRST, LAST)


def test_an_amended_round_is_rated_by_the_rule_at_its_offset() -> None:
    """Its new content was decoded elsewhere, where the configurations have other numbers."""
    reported, amended, other = (
        read(Elo(learning_rate=32.0), *ranked([1, 2], names), round_id="r").batch
        for names in ("ab", "cd", "ef")
    )
    rounds = RoundBatch.concat([other, reported])
    rounds.config_index[:], amended.config_index[:] = [3, 4], 9
    found, counts = edited(rounds, np.array([5, 7]), lambda *_: Edits(amended={7: amended}))
    assert found.names.texts() == list("efcd") and counts.all()
    assert found.config_index.tolist() == [3, 4]
