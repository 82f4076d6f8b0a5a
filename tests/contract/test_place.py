"""Places: the same facts about a log in memory, in a data file, and on Kafka and Redis."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import ANY_LADDER, any_ladder
from stream_rater.contract.events import joined
from stream_rater.contract.record import ANY_OFFSET, Record, checksum
from stream_rater.contract.season_ended import PageWritten, SeasonKept, Standing, encoded
from stream_rater.operations.rebuild import rebuild_from_log
from stream_rater.operations.verify import compared_with_replay
from stream_rater.pipeline.ladder_history import encode_histories
from stream_rater.pipeline.parts import decoder
from stream_rater.pipeline.parts.schema import RebuildMark, mark
from stream_rater.pipeline.ports import Application, Position
from stream_rater.places import checks
from stream_rater.places.port import CHANGED, Place
from tests.builders.lines import LADDER
from tests.builders.machines import CONFIG
from tests.contract.conftest import PLACES
from tests.contract.places import (
    ANN,
    LOG,
    OTHER,
    PlaceRig,
    a_memory,
    delete_rounds,
    digests,
    is_file,
    newest,
    records,
    unchanged,
    write_standings,
)
from tests.waits import HANGS_S

ENDS, SHARDS = [len(LOG)], 4
BELIEF = next(data for some in a_memory().beliefs() for _, data in some)
OTHERS = any_ladder(CONFIG)  # A ladders file with other parameters.
ROW = Standing(
    ladder=LADDER, season=1, player="ann", rank=1, listed=1, percentile=0.0, tier=None,
    rating=1600.0, mu=1700.0, sigma=80.0, rounds=9,
)  # fmt: skip
PAGE = PageWritten(ladder=LADDER, season=1, page=0, pages=1, digest="d")
KEPT = SeasonKept(
    ladder=LADDER, season=1, started_at=None, ended_at="2026-01-02T00:00:00Z", offset=5, players=1,
    listed=1, pages=1,
)  # fmt: skip


@pytest.fixture(scope="module", params=PLACES)
def rated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A place whose log is rated. Tests that use it change nothing."""
    folder = tmp_path_factory.mktemp("places")
    with PlaceRig(request.param, folder, lambda: request.getfixturevalue("addresses")) as rig:
        yield rig.rated()


@pytest.fixture
def place(places: PlaceRig) -> Place:
    """An empty place."""
    return places.empty()


def shard_of(player: str, place: Place) -> int:
    return int(shards_of([player], place.shards)[0])


# --- reading -------------------------------------------------------------------------------------


def test_the_log_has_its_size(rated: Place) -> None:
    assert (rated.partitions, rated.shards) == (1, SHARDS)
    assert (list(rated.starts()), list(rated.ends())) == ([0], ENDS)
    assert rated.end_of(LADDER) == rated.stable_end(0) == len(LOG)


def test_records_come_in_order(rated: Place) -> None:
    """Each record is at its offset with key, value and headers. (A moved one may be empty.)"""
    found = [*rated.all_rounds()]
    assert [each.offset for each in found] == [*range(len(LOG))]
    for each, given in zip(found, records(), strict=True):
        if each.value is not None:
            assert (each.key, each.value) == (given.key, given.value)
            assert list(each.headers) == list(given.headers)


def test_a_part_of_the_log_is_read(rated: Place) -> None:
    every = [*rated.all_rounds()]
    assert [*rated.rounds(0, 5)] == every[:5]
    again = [*rated.read_again(0, 3, 6)]
    assert again and again == every[3 : 3 + len(again)]
    assert [*rated.log_reader({0: 5}).records()] == every[:5]
    read = rated.log_reader()
    assert [*read.records()] == [*read.records()] == every


def test_parts_lie_between_their_bounds(rated: Place) -> None:
    starts, ends = rated.part_bounds()
    counts = [0] * SHARDS
    for batch in rated.parts():
        for each in batch:
            assert starts[each.partition] <= each.offset < ends[each.partition]
            counts[each.partition] += 1
    assert counts == [end - start for start, end in zip(starts, ends, strict=True)]


def test_the_newest_event_of_each_player(rated: Place) -> None:
    """It is the same at each place, and in the shard of its player."""
    assert newest(rated) == newest(a_memory())
    for each in rated.events():
        assert each.value and each.partition == shard_of(
            (each.key or b"").decode().partition(":")[2], rated
        )


def test_the_last_events_of_a_key(rated: Place) -> None:
    """Only the events of this ladder and player are returned."""
    key = joined(*ANN).encode()
    values, begin = rated.last_events(shard_of("ann", rated), key, 1, HANGS_S)
    assert values == [newest(rated)[key]] and begin == 0
    assert rated.last_events(0, b"nobody", 5, HANGS_S) == ([], 0)


def test_ladder_events_are_combined(rated: Place) -> None:
    """They give the ladders that were rated, and their accepted corrections."""
    found = rated.ladder_log()
    assert sorted(found.ladders) == [LADDER, OTHER]
    kinds = [each.event_type for each in found.corrections[LADDER]]
    assert kinds == ["round-voided", "season-started"]
    assert list(rated.ladder_events()) != []


def test_the_ladders_file_must_agree(rated: Place) -> None:
    """It must agree with the place's notes about all ladders, or about the given one."""
    checks.agreed(rated, ANY_LADDER, "nothing was done")
    with pytest.raises(BadConfiguration, match=r"and the notes .* differ .*: nothing was done"):
        checks.agreed(rated, OTHERS, "nothing was done")
    checks.agreed(rated, OTHERS, "nothing was done", only="unknown")


def test_beliefs_are_the_same_everywhere(rated: Place) -> None:
    assert digests(rated) == digests(a_memory())
    assert rated.kernel() == KERNEL_VERSION and rated.ratings()


def test_some_players_are_read(rated: Place) -> None:
    """The position of their shard is read, too. A player without a belief has None."""
    shard = shard_of("ann", rated)
    found = rated.read({shard: PlayerColumn.of([ANN, (LADDER, "nobody")])})[shard]
    every = {player: data for some in rated.beliefs() for player, data in some}
    assert list(found.records) == [every[ANN], None]
    assert not found.position.is_unfinished


def test_a_replay_gives_the_beliefs(rated: Place) -> None:
    with rated.at_rest(0.0) as instant:
        assert "all equal" in compared_with_replay(instant, ANY_LADDER)


def test_all_is_rated(rated: Place) -> None:
    """Everything is rated and applied, so no check refuses the place."""
    done = rated.progress()
    assert (done.rated, done.applied) == (ENDS, done.part_ends)
    assert list(rated.check_finished()) == ENDS
    rated.check_rated(LADDER, 0.0)
    for check in (rated.check_ratings, rated.check_whole, rated.check_idle, rated.look,
                  rated.check_layout):  # fmt: skip
        check()
    rated.check_unchanged(ENDS)


def test_events_are_followed(rated: Place) -> None:
    """They are followed from the first one that is kept, or from the end on."""
    count = len([*rated.events()])
    found = islice(filter(None, rated.follow(CHANGED, from_start=True)), count)
    assert {each.key or b"": each.value for each in found} == newest(rated)
    assert next(rated.follow(CHANGED, from_start=False)) is None
    assert rated.topic(CHANGED) and rated.events_of(0)


def test_no_season_has_standings(rated: Place) -> None:
    assert [*rated.standings()] == [] == list(rated.kept_seasons(LADDER))


# --- appending -----------------------------------------------------------------------------------


def test_records_are_appended(place: Place) -> None:
    """Each gets the offset that it has, or else the next one. A record may be empty."""
    place.append([*records(), Record(0, ANY_OFFSET, None)])
    found = [*place.all_rounds()]
    assert [each.value for each in found] == [*(each.value for each in records()), None]
    assert found[3].key == LADDER.encode()
    assert list(found[0].headers) == list(records()[0].headers)
    assert list(place.ends()) == [len(LOG) + 1]


def test_events_are_copied(place: Place) -> None:
    """They are copied with key, value and headers."""
    given = [each for each in a_memory().events() if each.partition == 2]
    assert given
    if is_file(place):
        place._pruned_before = [0] * SHARDS  # type: ignore[attr-defined]
    place.copy_events(given)
    found = [*place.events()]
    assert [(e.key, e.value, dict(e.headers)) for e in found] == [
        (e.key, e.value, dict(e.headers)) for e in given
    ]


def test_ladder_events_are_kept(place: Place) -> None:
    messages = encode_histories("noted", {LADDER: ("0:x",)})
    place.note(messages)
    assert list(place.ladder_events()) == messages
    assert place.ladder_log().ladders == [LADDER]


def test_offsets_of_rounds_are_committed(place: Place) -> None:
    """So is the checksum of the record before, by default the log's. A data file stores none."""
    before = place.commits()[0]
    assert before is None or before.offset == 0
    place.append(records())
    place.commit_rounds({0: 3})
    commit, tail = place.commits()[0], place.tails({0: 3})[0]
    assert commit is not None and commit.offset == 3 and place.progress().rated == [3]
    assert tail.end == len(LOG) and commit.tail == tail.tail
    if not is_file(place):
        assert tail.tail == checksum(records()[2].value)
        place.commit_rounds({0: 3}, {0: 7})
        commit = place.commits()[0]
        assert commit is not None and commit.tail == 7


def test_offsets_of_parts_are_committed(place: Place) -> None:
    place.commit_parts({1: 5})
    assert place.applied()[1] == 5
    assert not place.applied()[0]


def test_a_season_that_is_written_in_part(place: Place) -> None:
    """It is not listed as a season with standings, and its standings are not copied."""
    standings = [encoded(each, KEPT.ended_at) for each in (ROW, PAGE, KEPT)]

    def found(*, marks: bool = False) -> list[Any]:
        return [(each.key, each.value) for each in place.standings(marks=marks)]

    written = [(each.key, each.value) for each in standings]
    write_standings(place, standings[:2])
    assert (found(), found(marks=True)) == (written[:2], written[1:2])
    assert list(place.kept_seasons(LADDER)) == []
    for some in (place.standings(), place.standings(marks=True)):
        with pytest.raises(Failed, match=r"season 1: only a part of its standings is written"):
            [*checks.whole_seasons(some)]
    write_standings(place, standings[2:])
    assert (found(), found(marks=True)) == (written, written[1:])
    assert [each.headers for each in checks.whole_seasons(place.standings())] == [
        each.headers for each in standings
    ]
    assert list(place.kept_seasons(LADDER)) == [KEPT] and list(place.kept_seasons("eu")) == []


# --- a rebuild -----------------------------------------------------------------------------------


def test_each_shard_gets_a_mark(place: Place) -> None:
    """The mark is at the end of the shard's parts."""
    _, before = place.part_bounds()
    marks = [mark(place.shards, b"word", end) for end in before]
    assert place.write_marks(marks) == dict(enumerate(before))
    for batch in place.parts():
        for each in batch:
            with pytest.raises(RebuildMark):
                decoder.read(each.value or b"")
    assert list(place.part_bounds()[1]) == [end + 1 for end in before]


def test_a_rebuild_begins_without_beliefs(places: PlaceRig) -> None:
    """Each shard is unfinished, and all of them have the new epoch."""
    place = places.rated()
    place.begin_rebuild(b"new")
    assert not any(place.beliefs())
    found = place.read({shard: PlayerColumn.of([ANN]) for shard in range(SHARDS)})
    assert all(each.position.is_unfinished for each in found.values())
    assert {each.position.epoch for each in found.values()} == {b"new"}


def test_beliefs_are_written_by_compare_and_set(place: Place) -> None:
    """They are written only in the epoch and at the position that the caller expects."""
    epoch, shard = b"new", shard_of("ann", place)
    place.begin_rebuild(epoch)
    start = place.read({shard: PlayerColumn.of([ANN])})[shard].position.applied
    beliefs = BeliefColumn.of([(ANN, BELIEF)])
    for position in (Position(9, start, epoch=b"another"), Position(9, 5, epoch=epoch)):
        assert place.apply({shard: Application(position, beliefs)}) == {shard: False}
        assert not any(place.beliefs())
    right = Application(Position(9, start, epoch=epoch), beliefs)
    assert place.apply({shard: right}) == {shard: True}
    found = place.read({shard: PlayerColumn.of([ANN])})[shard]
    assert (found.position.applied, list(found.records)) == (9, [BELIEF])


def test_beliefs_are_rebuilt(places: PlaceRig) -> None:
    """Beliefs and events are as before. All counts as rated, and the place can be used."""
    place = places.rated()
    before, events = digests(place), newest(place)
    with place.rebuilding(lambda _: None) as target:
        target.begin_rebuild(b"new")
        rebuild_from_log(target, ANY_LADDER, cores=1)
    place = places.opened(place.settings) if is_file(place) else place
    assert (digests(place), newest(place)) == (before, events)
    assert list(place.check_finished()) == ENDS
    place.check_ratings()


def test_a_rebuild_that_is_refused_changes_nothing(places: PlaceRig) -> None:
    place = places.rated()

    def refuse(found: Place) -> None:
        assert found is place
        raise BadConfiguration("give --replace")

    with unchanged(place), pytest.raises(BadConfiguration), place.rebuilding(refuse):
        pass


# --- what is refused -----------------------------------------------------------------------------


def test_records_that_nobody_rated_are_refused(places: PlaceRig) -> None:
    """They are refused by each check that needs the whole log to be rated."""
    place = places.rated()
    place.append([Record(0, ANY_OFFSET, b"{}")])
    with pytest.raises(Failed):
        place.check_finished()
    with pytest.raises(Failed), place.at_rest(0.0):
        pass
    with pytest.raises(Failed):
        place.check_rated(LADDER, 0.0)
    if not is_file(place):  # nobody else writes to a file that is open to write
        with pytest.raises(Failed):
            place.check_unchanged(ENDS)


def test_a_log_that_lost_its_beginning_is_refused(places: PlaceRig) -> None:
    place = places.rated()
    delete_rounds(place, 2)
    for check in (place.check_complete, place.check_whole, place.check_finished):
        with pytest.raises(Failed, match="partition 0 of the rounds starts at 2"):
            check()


def test_a_log_is_moved_to_an_empty_place_only(places: PlaceRig) -> None:
    place = places.rated()
    with pytest.raises(BadConfiguration):
        place.check_new("--to", a_memory())
