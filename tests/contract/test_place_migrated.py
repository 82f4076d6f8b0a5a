"""A log is moved, or written again with a pseudonym in the place of an id, whatever was done to it
before: shards were added, records were lost, corrections were applied."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from stream_rater.columns.sharding import shards_of
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import ANY_LADDER, TEMPLATE, Change, Ladder, Ladders, any_ladder
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LayoutMismatch, Unusable
from stream_rater.contract.events import LOG_LOST, offset_of, rating_changed_from_json
from stream_rater.contract.record import ANY_OFFSET, Record
from stream_rater.operations.migrate import Migration
from stream_rater.operations.rebuild import rebuild_from_log
from stream_rater.operations.rewriting import Pseudonym
from stream_rater.operations.verify import compared_with_replay
from stream_rater.places.port import Place
from tests.builders.cases import cases
from tests.builders.commands import done
from tests.builders.kills import PORT_WRITES, dies_at
from tests.builders.lines import LADDER, a_correction
from tests.builders.machines import CONFIG
from tests.builders.memory_place import MemoryPlace
from tests.builders.memory_places import a_rated_place, an_empty_place
from tests.contract.conftest import REAL
from tests.contract.places import (
    LOG,
    REJECTED,
    SHARDS,
    PlaceRig,
    a_memory,
    check_copied,
    digests,
    is_file,
    make_file,
    moved,
    newest,
    unchanged,
)
from tests.integration.forks import Fork
from tests.integration.processes import complaints, environment_of, stream_rater
from tests.waits import HANGS_S

NAME = Pseudonym("ann", "somebody")


def copied(
    place: Place, target: Place, name: Pseudonym | None = None, undone: str = "nothing was moved",
    ladders: Ladders = ANY_LADDER,
) -> Migration:  # fmt: skip
    """The migration to a new place whose log is copied, as the command does it."""
    work = Migration(place, target, ladders, name, undone)
    work.check()
    work.copy(work.search())
    return work


def renamed(found: dict[tuple[str, str], bytes]) -> dict[tuple[str, str], bytes]:
    return {(of, NAME.name if who == "ann" else who): each for (of, who), each in found.items()}


# --- wherever it is ------------------------------------------------------------------------------


def test_an_id_is_erased(places: PlaceRig) -> None:
    """Ratings and offsets stay. The id is in no text, and rejected records are empty."""
    place = places.rated()
    before = renamed(dict(digests(place)))
    prefix = place.settings.topic_prefix
    with place.successor(f"{prefix}v2." if prefix else "") as new:
        work = copied(place, new, NAME, "nothing was erased")
        work.rebuild()
    if is_file(place):
        new = places.opened(place.settings)
    assert digests(new) == before
    assert list(new.ends()) == [len(LOG)] == list(new.check_finished())
    found = [*new.all_rounds()]
    assert {each.offset for each in found if each.value is None} == REJECTED
    texts = [each.value or b"" for each in (*found, *new.events())]
    texts += [each.key or b"" for each in new.events()] + [*new.ladder_events()]
    assert not [each for each in texts if b'"ann"' in each or each.endswith(b":ann")]
    assert any(b"somebody" in each for each in texts)
    assert {key for _, key in work.keys} == {b"l:ann"}
    new.check_ratings()
    assert "all equal" in compared_with_replay(new, ANY_LADDER)


def test_a_log_is_moved(places: PlaceRig) -> None:
    """A move to fewer shards keeps ratings, offsets and newest events. The old place is closed."""
    source = places.rated()
    before, at = digests(source), an_empty_place(shards=3)
    moved(source, at)
    assert check_copied(source, at) == (0 if places.kind == "kafka" else len(REJECTED))
    assert digests(at) == before
    assert list(at.check_finished()) == [len(LOG)]
    assert "all equal" in compared_with_replay(at, ANY_LADDER)
    if isinstance(source, MemoryPlace):
        assert source.moved == at.name
        return
    source.close()
    with pytest.raises((Unusable, LayoutMismatch), match="moved"):
        places.opened(source.settings).check_ratings()


def test_what_is_moved_to(places: PlaceRig) -> None:
    """The new place has the same beliefs and events, and can be used by workers."""
    if places.kind == "file":
        pytest.skip("a log is moved to Kafka only")
    source, target = a_memory(), places.new()
    before = digests(source)
    moved(source, target)
    assert (digests(target), newest(target)) == (before, newest(source))
    target.check_ratings()
    target.check_settings()
    with pytest.raises(BadConfiguration):
        target.check_new("--to", source)


@pytest.mark.parametrize("places", [REAL], indirect=True)
def test_a_half_move_is_refused(places: PlaceRig) -> None:
    """The new place cannot be used from its first record on until the copy is complete."""
    source, target = a_memory(), places.new()
    work = Migration(source, target, ANY_LADDER, None, "")
    work.check()
    target.check_new("--to", source)
    work.copy(work.search())
    with pytest.raises(LayoutMismatch, match="the move of memory to this place is unfinished"):
        target.check_settings()
    work.rebuild()
    with pytest.raises(LayoutMismatch, match="the move of memory"):
        target.check_settings()
    target.end_copy()
    target.check_settings()
    with pytest.raises(LayoutMismatch, match="the store is being rebuilt"):
        target.check_ratings()


def test_a_log_that_is_not_rated_is_not_written_again(places: PlaceRig) -> None:
    """Nor is one that was rated by another ladders file. Nothing is written."""
    place, target = places.rated(), an_empty_place()
    with unchanged(place), pytest.raises(BadConfiguration, match=r"differ .*: nothing was moved"):
        Migration(place, target, any_ladder(CONFIG), None, "nothing was moved").check()
    place.append([Record(0, ANY_OFFSET, b"{}")])
    with unchanged(place), pytest.raises(Failed):
        Migration(place, target, ANY_LADDER, None, "nothing was moved").check()


def test_an_id_is_not_erased_while_a_correction_waits() -> None:
    """What a deferred correction names is not renamed. A move, which renames nobody, is allowed."""
    waits = a_correction("player-removed", player="bob", batched=True)
    place = a_rated_place([*LOG, waits])
    with pytest.raises(Failed, match="1 correction waiting for corrections-applied"):
        Migration(place, an_empty_place(), ANY_LADDER, NAME, "").check()
    Migration(place, an_empty_place(), ANY_LADDER, None, "").check()


# --- when something differs ----------------------------------------------------------------------


def test_a_belief_that_differs_ends_it() -> None:
    """It ends the migration before the new place can be used. The old place is unchanged."""
    source, target = a_memory(), an_empty_place()
    work = copied(source, target)
    shard = next(iter(source.store.beliefs.values()))
    player = next(iter(shard))
    shard[player] = shard[player][:-1] + bytes([shard[player][-1] ^ 1])
    with unchanged(source), pytest.raises(Failed, match=r"1 beliefs are different, .* moved"):
        work.rebuild()


@cases("change, says", [
    (lambda source, target: source.log.submit(0, b"late"), "a record has come"),
    (lambda source, target: target.log.submit(0, b"late"), "something else writes to memory"),
])  # fmt: skip
def test_a_record_that_comes_during_a_copy_ends_it(
    change: Callable[[MemoryPlace, MemoryPlace], object], says: str
) -> None:
    """It ends the migration, whether it comes to the old place or to the new one."""
    source, target = a_memory(), an_empty_place()
    work = copied(source, target)
    change(source, target)
    with pytest.raises(Failed, match=says):
        work.rebuild()


# --- what features do to a log -------------------------------------------------------------------


def with_more_shards() -> MemoryPlace:
    """A log whose shards were added, so that old events may be in the shard of another number."""
    place = a_memory()
    events = {each.key: each for some in place.log.changed for each in some}
    place.log.add_shards(3)
    rebuild_from_log(place, ANY_LADDER, cores=1)
    for key, event in events.items():
        (home,) = shards_of([key.decode().partition(":")[2]], place.shards).tolist()
        old = place.log.changed[event.shard]
        old.remove(event)
        place.log.changed[home].append(msgspec.structs.replace(event, shard=home))
    place.log.changed.reverse()
    return place


@cases("pseudonym", [None, NAME])
def test_a_log_whose_shards_were_added(pseudonym: Pseudonym | None) -> None:
    """After a move and after an erasure, each player has the newest event that there was."""
    source, target = with_more_shards(), an_empty_place(shards=SHARDS + 3)
    expected = newest(a_memory())
    before = {key: newest_by_offset(source, key) for key in expected}
    assert before == expected
    copied(source, target, pseudonym).rebuild()
    names = {key: key.replace(b":ann", b":somebody") if pseudonym else key for key in expected}
    for key, value in expected.items():
        found = newest_by_offset(target, names[key])
        assert offset_of(found) == offset_of(value)
        if key == names[key]:
            assert found == value
    assert digests(target) == (renamed(dict(digests(source))) if pseudonym else digests(source))


def newest_by_offset(place: Place, key: bytes) -> bytes | None:
    """The event with the greatest offset of those with this key, in whatever shard it is."""
    return max((each.value for each in place.events() if each.key == key), key=offset_of)


KEPT = 12  # The number of records that a torn log still has. One is a correction.


def torn() -> MemoryPlace:
    """A log that lost its last records. Their parts, events and committed offsets stay."""
    place = a_memory()
    del place.log.rounds[0][KEPT:]
    return place


def test_a_torn_log_with_corrections() -> None:
    """Commands refuse it until a rebuild. Then beliefs are those of what is left, no offset is used
    again, and players whose ratings changed have new events. A second rebuild changes nothing."""
    place, whole = torn(), a_memory()
    with unchanged(place), pytest.raises(Failed):
        Migration(place, an_empty_place(), ANY_LADDER, None, "").check()
    rebuild_from_log(place, ANY_LADDER, cores=1)
    assert digests(place) == digests(a_rated_place(LOG[:KEPT]))
    assert len(place.log.rounds[0]) > len(LOG)
    added = [
        rating_changed_from_json(each.value)
        for old, new in zip(whole.log.changed, place.log.changed, strict=True)
        for each in new[len(old) :]
    ]
    causes = {each.correction.cause if each.correction else "" for each in added}
    assert {each.player for each in added} >= {"bob", "cy"} and causes == {LOG_LOST}
    before = newest(place)
    rebuild_from_log(place, ANY_LADDER, cores=1)
    assert newest(place) == before and digests(place) == digests(a_rated_place(LOG[:KEPT]))
    target = an_empty_place()
    moved(place, target)
    assert newest(target) == before


def said(place: Place) -> dict[bytes, tuple[float, float, int]]:
    """The rating that the newest event of each player has."""
    found = ((key, rating_changed_from_json(each)) for key, each in newest(place).items())
    return {key: (each.mu, each.sigma, each.rounds) for key, each in found}


def test_a_torn_log_is_rebuilt_wherever_the_rebuild_was_killed() -> None:
    """A rebuild that follows one killed after any write leads to the same beliefs and events."""
    whole = torn()
    rebuild_from_log(whole, ANY_LADDER, cores=1)
    for number in itertools.count():
        place, left = torn(), itertools.count(-number)

        def step(_: str, left: Iterator[int] = left) -> None:
            if next(left) == 0:
                raise InterruptedError

        place._on_write = step
        try:
            rebuild_from_log(place, ANY_LADDER, cores=1)
        except InterruptedError:
            place._on_write = lambda _: None
            rebuild_from_log(place, ANY_LADDER, cores=1)
            assert digests(place) == digests(whole)
            assert said(place) == said(whole)
        else:
            assert number > 8
            return


def test_two_ladders_files_at_once() -> None:
    """The file with the change at an offset can move the log and its histories; the old cannot."""
    template = ANY_LADDER.ladders[TEMPLATE]
    change = Change(from_offset=5, rating=CONFIG)
    changed = Ladder(rating=template.rating, changes=(change,))
    new = Ladders(ladders={LADDER: changed, TEMPLATE: template})
    source, target = a_rated_place(LOG, new), an_empty_place()
    copied(source, target, ladders=new).rebuild()
    assert digests(target) == digests(source)
    assert target.ladder_log().of(LADDER) == source.ladder_log().of(LADDER)
    for place in (source, target):
        with unchanged(place), pytest.raises(BadConfiguration, match="differ from offset 5 on"):
            Migration(place, an_empty_place(), ANY_LADDER, None, "nothing was moved").check()


# --- killed at each call that writes, on a data file ----------------------------------------------

COMMANDS: dict[str, tuple[str, ...]] = {
    "rebuild": ("rebuild", "--replace", "--cores", "1"),
    "erase": ("erase", "ann", "--pseudonym", "somebody"),
}
UNUSED = {
    "rebuild": {"append", "copy_events", "write_standings", "commit_rounds", "begin_parts",
                "begin_copy", "mark_moved"},
    "erase": {"mark_moved"},
}  # fmt: skip
"""The methods of PORT_WRITES that a command does not call."""


def killed_at(number: int, words: tuple[str, ...], path: Path) -> str:
    """Run a command, and kill it at this call. Returns the call's name; empty if it ended."""
    said, log = path.with_name("said"), path.with_name("log")
    said.write_text("")
    prepare = partial(dies_at, number, str(said))
    code = Fork(words, environment_of(Settings(data=str(path))), log, log, prepare).wait(HANGS_S)
    assert code == (9 if said.read_text() else 0), log.read_text()
    return said.read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_each_call(tmp_path: Path, command: str) -> None:
    """The file stays as it is until a new one replaces it. A second run cleans up after it."""
    words, original = COMMANDS[command], tmp_path / "original.db"
    make_file(original)
    path, made = tmp_path / "ratings.db", list[str]()
    for number in itertools.count():
        shutil.copy(original, path)
        name = killed_at(number, words, path)
        if not name:
            break
        made.append(name)
        assert path.read_bytes() == original.read_bytes(), made
        assert "all equal" in done("verify", "--data", path), made
    assert {*made} == {*PORT_WRITES, "replace_by"} - UNUSED[command]
    shutil.copy(original, path)
    killed_at(len(made) - 1, words, path)
    again = stream_rater(*words, settings=Settings(data=str(path)))
    assert (again.returncode, complaints(again.stderr)) == (0, [])
    assert "all equal" in done("verify", "--data", path)
    assert (b"ann" in path.read_bytes()) == (command == "rebuild")
    assert not [each for each in tmp_path.iterdir() if ".stream-rater-" in each.name]
