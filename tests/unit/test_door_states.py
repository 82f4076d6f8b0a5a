"""The state of a round: what is known of it, what is dropped, and what cannot be known."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.columns.sharding import partition_of
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import CorrectionCause
from stream_rater.contract.record import RecordPlace, RejectedRecord, WorkersProgress
from stream_rater.places.file import FilePlace
from stream_rater.runtime.engine import EmbeddedEngine
from stream_rater.serve.door.outcomes import RoundStates
from stream_rater.serve.door.read_your_writes import Settled
from tests.builders.cases import cases
from tests.builders.indexes import an_event
from tests.builders.memory_place import MemoryPlace
from tests.builders.rated_data_files import rate

P = partition_of("eu", 2)
OTHER = 1 - P


def states(most: int = 100, most_changes: int = 100, known: int = 0) -> RoundStates:
    """States of a process that knows everything from these offsets on."""
    found = RoundStates(most, most_changes)
    found.began([known, known])
    return found


def shown(found: RoundStates, round_id: str = "r", offset: int | None = None) -> tuple[object, ...]:
    """Status, offset, players with a change, and whether they are complete."""
    place = None if offset is None else RecordPlace(P, offset)
    outcome = found.of("eu", round_id) if place is None else found.at(place, "eu", round_id)
    if outcome is None:
        return ()
    state = outcome.state
    return outcome.status, state.place.offset, sorted(state.changes), outcome.complete


def rejection(offset: int, code: str = "bad-time", round_id: str = "r") -> RejectedRecord:
    return RejectedRecord(RecordPlace(P, offset), code, "why", "eu", round_id)


def test_rated_once_all_players_have_changed() -> None:
    """Before that it is pending. A round where all tie has no event, and is rated once settled."""
    found = states()
    found.posted(RecordPlace(P, 3), "eu", "r", 2)
    assert shown(found) == ("pending", 3, [], False)
    found.changed(an_event("ann", 3, ladder="eu", round_id="r"))
    assert shown(found) == ("pending", 3, ["ann"], False)
    found.changed(an_event("ann", 3, ladder="eu", round_id="r"))
    assert shown(found) == ("pending", 3, ["ann"], False)
    found.changed(an_event("bob", 3, ladder="eu", round_id="r"))
    assert shown(found) == ("rated", 3, ["ann", "bob"], True)
    found = states()
    found.posted(RecordPlace(P, 3), "eu", "r", 2)
    found.settled([3, 3])
    assert shown(found)[0] == "pending"
    found.settled([4, 4])
    assert shown(found) == ("rated", 3, [], True)


def test_what_was_dropped_stays_unknown() -> None:
    """Also when the topics are followed once more, from ends that are no later."""
    found = states(most=1)
    for offset in (3, 4):
        found.posted(RecordPlace(P, offset), "eu", f"r{offset}", 2)
    found.began([0, 0])
    assert shown(found, "r3", 3) == ()
    assert shown(found, "r4", 4) == ("pending", 4, [], False)


def test_an_event_may_come_before_the_acknowledgement() -> None:
    """And so may a rejection, whose record says neither ladder nor id."""
    found = states()
    found.changed(an_event("ann", 3, ladder="eu", round_id="r"))
    found.posted(RecordPlace(P, 3), "eu", "r", 1)
    assert shown(found) == ("rated", 3, ["ann"], True)
    found.rejected(RejectedRecord(RecordPlace(P, 4), "malformed", "why", "", ""))
    found.posted(RecordPlace(P, 4), "eu", "s", 1)
    assert shown(found, "s") == ("rejected", 4, [], True)


def test_what_is_known_from_others() -> None:
    """Their rounds are known by events. By id, the newest that is no duplicate counts."""
    found = states()
    found.changed(an_event("ann", 3, ladder="eu", round_id="r"))
    assert shown(found) == ("pending", 3, ["ann"], False)
    found.settled([4, 4])
    assert shown(found) == ("rated", 3, ["ann"], True)
    found = states()
    found.rejected(rejection(5, "duplicate-round"))
    assert shown(found)[:2] == ("duplicate", 5)
    found.rejected(rejection(1))
    assert shown(found)[:2] == ("rejected", 1)
    found.posted(RecordPlace(P, 3), "eu", "r", 1)
    assert shown(found)[:2] == ("pending", 3)
    assert shown(found, offset=5)[:2] == ("duplicate", 5)


def test_no_id_is_at_the_place_of_a_correction() -> None:
    """Such a question is not answered by `pending` and later `rated`, and a rejection is shown."""
    found = states()
    found.corrected(RecordPlace(P, 3), "eu")
    seeded = CorrectionCause(cause="players-seeded", offset=5, round_id="s")
    found.changed(an_event("ann", 4, ladder="eu", round_id="r", correction=seeded))
    assert (shown(found, offset=3), shown(found, offset=5)) == ((), ())
    found.settled([9, 9])
    assert (shown(found, offset=3), shown(found, offset=5)) == ((), ())
    assert shown(found, offset=6)[0] == "rated"  # another process may have sent a round
    found.rejected(RejectedRecord(RecordPlace(P, 3), "unknown-round", "why", "", ""))
    assert (shown(found, offset=3)[0], shown(found)) == ("rejected", ())


def test_what_cannot_be_known_is_said() -> None:
    """A round with possible earlier events is incomplete; one without any trace is unknown."""
    found = states(known=5)
    found.changed(an_event("ann", 3, ladder="eu", round_id="r"))
    found.settled([8, 8])
    assert shown(found) == ("rated", 3, ["ann"], False)
    assert shown(found, "x", offset=4) == ()
    assert shown(found, "x") == ()
    assert shown(found, "x", offset=6) == ("rated", 6, [], True)
    assert shown(found, "x", offset=9) == ("pending", 9, [], False)
    assert shown(found, "x", offset=3) == ()
    found = states()
    found.posted(RecordPlace(P, 3), "eu", "r", 2)
    found.began([4, 4])
    found.settled([4, 4])
    assert shown(found) == ("rated", 3, [], False)
    found, cause = states(), CorrectionCause(cause="round-voided", offset=3, round_id="r")
    found.changed(an_event("ann", 3, ladder="eu", round_id="r", correction=cause))
    assert shown(found) == ()


def test_corrections_that_others_send() -> None:
    """Events show them: about a round the newest counts, about a player all rounds before."""

    def event(cause: str, offset: int, round_id: str = "") -> None:
        of = CorrectionCause(cause=cause, offset=offset, round_id=round_id)
        found.changed(an_event("ann", offset, ladder="eu", round_id=round_id, correction=of))

    def corrected(offset: int) -> tuple[object, ...]:
        outcome = found.at(RecordPlace(P, offset), "eu", "r")
        return () if outcome is None else (outcome.status, outcome.complete, outcome.corrected_at)

    found = states()
    for offset in (3, 9):
        found.changed(an_event("ann", offset, ladder="eu", round_id="r"))
    found.settled([10, 10])
    event("players-seeded", 5, "s")
    assert (corrected(3), corrected(9)) == (("rated", True, None), ("rated", True, None))
    event("round-voided", 8, "r")
    assert (corrected(3), corrected(9)) == (("voided", True, 8), ("rated", True, None))
    event("round-amended", 7, "r")
    assert corrected(3) == ("voided", True, 8)
    event("round-amended", 11, "r")
    event("player-removed", 12)
    assert (corrected(3), corrected(9)) == (("voided", True, 12), ("amended", False, 12))


def test_states_are_bounded() -> None:
    """The oldest are dropped, by number of rounds and of changes, and are unknown then."""
    found = states(most=2)
    for offset in range(3):
        found.posted(RecordPlace(P, offset), "eu", f"r{offset}", 1)
    assert len(found) == 2 and shown(found, "r0") == () and shown(found, "r0", offset=0) == ()
    assert shown(found, "r1")[0] == "pending"
    found = states(most_changes=2)
    for offset in range(3):
        found.changed(an_event("ann", offset, ladder="eu", round_id=f"r{offset}"))
    assert len(found) == 2 and shown(found, "r0") == ()


def progress(
    rated: int, parts: Sequence[int], applied: Sequence[int], changes: Sequence[int],
    rejections: int = 0,
) -> WorkersProgress:  # fmt: skip
    """One partition of rounds, two shards."""
    return WorkersProgress([rated], list(parts), list(applied), list(changes), [rejections])


def test_an_offset_is_included_after_all_three_rules() -> None:
    """W1: rated beyond it. W2: the parts of that moment applied. W3: the events of then read."""
    found = Settled()
    assert found.needed(0, 0, [0]) is None
    found.observe(progress(5, [10, 20], [10, 19], [100, 200]))
    assert found.needed(0, 5, [0]) is None  # W1
    assert found.needed(0, 4, [0]) == {0: 100}
    assert found.needed(0, 4, [0, 1]) is None  # W2 of shard 1
    # Of the parts before W1 only the end at that moment counts.
    found.observe(progress(6, [11, 25], [11, 20], [101, 201]))
    assert found.needed(0, 4, [0, 1]) == {0: 101, 1: 201}
    assert found.needed(0, 5, [0]) == {0: 101} and found.needed(0, 5, [1]) is None


def test_what_this_process_has_read() -> None:
    """Everything up to the ends of events and rejections. Progress is made though ends advance."""
    found = Settled()
    found.observe(progress(5, [10, 20], [10, 20], [100, 200], rejections=7))
    assert found.read([100, 199], [7]) == [0]
    assert found.read([100, 200], [6]) == [0]
    assert found.read([100, 200], [7]) == [5]
    found = Settled()
    for step in range(1, 6):
        found.observe(progress(step, [step, step], [step, step], [step, step]))
        read = found.read([step - 1, step - 1], [0])
    assert read[0] >= 3


@cases("kind", ["memory", "file"])
def test_rejections_are_followed(kind: str, tmp_path: Path) -> None:
    """First the last ones, then each that comes. Their ids are of rounds, not of corrections."""
    path, engine = tmp_path / kind, EmbeddedEngine()

    def submit(value: bytes, *headers: tuple[str, bytes]) -> None:
        engine.log.submit(0, value, headers)
        engine.settle()
        with closing(Database.open(path, partitions=1)) as database:
            SqliteLog(database).submit(0, value, headers)
        rate(path, partitions=1)

    submit(b'{"ladder":"eu","round_id":"r","completed_at":"x","standings":[]}')
    submit(b'{"ladder":"eu","round_id":"r"}', (EVENT_TYPE, b"round-voided"))
    in_memory = MemoryPlace(engine.log, engine.store)
    with closing(in_memory if kind == "memory" else FilePlace(Settings(), path)) as place:
        positions, first = list[int](), place.progress().rejection_ends
        coming = place.follow_rejections(positions)
        assert not next(coming) and positions == [first[0] - 2]
        one, two = next(coming)
        assert (one.place, one.code, one.ladder, one.round_id) == ((0, 0), "bad-time", "eu", "r")
        assert (two.place, two.ladder, two.round_id) == ((0, 1), "", "")
        assert positions == first and not next(coming)
        submit(b"no round")
        for following in (place.follow_rejections([*positions]), coming):
            (three,) = next(filter(None, following))
            assert (three.place, three.code) == ((0, 2), "malformed")
        assert positions == place.progress().rejection_ends != first
