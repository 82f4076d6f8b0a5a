"""What `erase` makes of each record: the player's id is replaced, and nothing else."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest

from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import joined, to_json
from stream_rater.contract.record import Headers, Record
from stream_rater.operations.erase import check_mentions, pseudonym_of
from stream_rater.operations.migrate import check_kernel, difference, digests_of
from stream_rater.operations.rewriting import MOST_PLACES, Mentions, Pseudonym, flagged, rewritten
from stream_rater.pipeline.ladder_history import LadderLog, encode_corrections, encode_histories
from stream_rater.pipeline.ports import RecordedCorrection
from stream_rater.replay.edited_log import MissingVerdicts, Verdicts
from stream_rater.replay.edits import NO_EDITS, EditsSoFar
from tests.builders.cases import cases
from tests.builders.machines import a_belief
from tests.rounds import MSGPACK_HEADERS, as_json, as_msgpack, event, ranked

TO = Pseudonym("ann", "x-1")
ODD = Pseudonym('a:"%ü', "y{2}")


def record_of(value: bytes | None, headers: Headers = (), offset: int = 0) -> Record:
    return Record(0, offset, value, headers, received_s=4e9, key=b"ranked-eu")


def renamed(value: bytes, headers: Headers = (), to: Pseudonym = TO) -> bytes:
    """The value of a record under the new name; all else of the record stays."""
    given = record_of(value, headers)
    found = to.record(given)
    assert found.value is not None
    assert msgspec.structs.replace(found, value=value) == given
    return found.value


def correction(kind: str) -> Headers:
    return [(EVENT_TYPE, kind.encode())]


# --- round-completed -----------------------------------------------------------------------------


def test_the_id_is_found_however_it_is_spelt() -> None:
    """With escapes or in MessagePack. Everything else keeps its bytes; others keep their object."""
    escaped = as_json().replace(b'"ann"', b'"\\u0061nn"')
    assert renamed(escaped) == as_json(*ranked([1, 2], ["x-1", "bob"]))
    packed = as_msgpack({"team": ["ann", "cy"], "rank": 1}, {"player": "ann", "rank": 2}, more=7)
    assert msgspec.msgpack.decode(renamed(packed, MSGPACK_HEADERS)) == event(
        {"team": ["x-1", "cy"], "rank": 1}, {"player": "x-1", "rank": 2}, more=7
    )
    odd = as_json(*ranked([1, 2], [ODD.player, "bob"]))
    assert renamed(odd, to=ODD) == as_json(*ranked([1, 2], [ODD.name, "bob"]))
    value = (
        b'{"weight":1.500,"more": {"a" : [1e2 ,"\\u00e9"]},"standings":[{"rank":1,"player":"ann",'
        b'"elo":0.10},{"team":["bob","ann"],"shares":[1.0,0.50],"rank":2}],"ladder":"l"}'
    )
    assert renamed(value) == value.replace(b'"ann"', b'"x-1"').replace(b'": {', b'":{')
    for value in (as_json(*ranked([1, 2])), as_json(round_id="ann", note="ann"), b"\\ann"):
        some = value if value != b"\\ann" else as_json(*ranked([1, 2]), note="\\ann")
        record = record_of(some.replace(b'"player":"ann"', b'"player":"anna"'))
        assert TO.record(record) is record and not TO.names(record)


@cases(
    ("kind", "fields"),
    [
        ("player-removed", {"player": "ann", "from": "2026-11-01T00:00:00Z"}),
        ("player-merged", {"player": "ann", "into": "bob"}),
        ("player-merged", {"player": "bob", "into": "ann"}),
        ("round-amended", {"round_id": "ann", "standings": ranked([2, 1], ["bob", "ann"])}),
    ],
)
def test_corrections_name_players_in_their_own_fields(kind: str, fields: dict[str, Any]) -> None:
    """A round has no such fields: what it says there is somebody's own."""
    before = {"ladder": "l", "reason": "ann", **fields}
    after = json.loads(json.dumps(before).replace('"ann"', '"x-1"')) | {"reason": "ann"}
    after |= {"round_id": "ann"} if "round_id" in fields else {}
    assert json.loads(renamed(to_json(before), correction(kind))) == after
    value = as_json(*ranked([1, 2]), into="ann")
    assert renamed(value) == value


def test_seeds_and_resets_name_players() -> None:
    """In rows, whose other fields keep their bytes, or in a field. Rounds have no such rows."""
    seed = b'{"players":[{"player":"bob","mu":1.50},{"player":"ann","mu":1e3}],"ladder":"ann"}'
    kind = correction("players-seeded")
    assert renamed(seed, kind) == seed.replace(b'"player":"ann"', b'"player":"x-1"')
    assert renamed(seed.replace(b'"ann",', b'"\\u0061nn",'), kind) == renamed(seed, kind)
    packed = msgspec.msgpack.encode({"players": [{"player": "ann", "mu": 1.0}]})
    found = msgspec.msgpack.decode(renamed(packed, [*kind, *MSGPACK_HEADERS]))
    assert found == {"players": [{"player": "x-1", "mu": 1.0}]}
    reset = b'{"player":"ann","sigma":1.0,"source":"bob"}'
    assert renamed(reset, correction("player-reset")) == reset.replace(b"ann", b"x-1")
    for headers in ((), correction("player-removed")):
        assert renamed(seed, headers) == seed


@cases(
    ("value", "headers", "where"),
    [
        (as_json(round_id="ann-vs-bob"), (), "round_id"),
        (as_json(*ranked([1, 2]), note={"of": ["it was Ann", "ann!"]}), (), "note"),
        (as_json({"player": "cy", "rank": 1, "nick": "ann_"}), (), "standings[].nick"),
        (as_json(round_id="\\ann").replace(b"\\\\ann", b"\\u0061nn"), (), "round_id"),
        (as_json(), [("x", None), ("ce_subject", b"players/ann")], "header ce_subject"),
        (as_msgpack(round_id="ann"), MSGPACK_HEADERS, "round_id"),
        (to_json({"reason": "ann cheats"}), correction("player-removed"), "reason"),
        (to_json({"source": "of ann"}), correction("players-seeded"), "source"),
        (to_json({"round_id": "ann-1", "at": ""}), correction("player-reset"), "round_id"),
        (as_json(*ranked([1, 2]), players="ann"), (), "players"),
        (to_json({"players": [{"player": "ann"}], "at": "ann"}), correction("players-seeded"), ""),
        (as_json(*ranked([1, 2], ["ann-2", "cy"]), ladder="ann", round_id="hannah"), (), ""),
    ],
)
def test_where_the_id_still_stands_is_reported(value: bytes, headers: Headers, where: str) -> None:
    """As a word in a text of the producer's own; other players and ladders are not meant."""
    assert TO.leftover_field(TO.record(record_of(value, headers))) == where


# --- rating-changed and ladders-noted ------------------------------------------------------------


@cases(("value", "expected"), [
    (b'{"standings":[{"player":"ann","player":"zz","rank":1}], "weight":1.50}',
     b'{"standings":[{"player":"zz","rank":1}],"weight":1.5}'),
    (b'{"standings":[{"player":"ann"}],"standings":[{"player":"ann"},{"player":"b"}]}',
     b'{"standings":[{"player":"x-1"},{"player":"b"}]}'),
    (b'{"standings":[{"player":"b"}],"stand\\u0069ngs":[{"team":["\\u0061nn"],"team":["c"]}]}',
     b'{"standings":[{"team":["c"]}]}'),
    (b'{"note":{"by":"ann","by":1},"standings":[]}', b'{"note":{"by":1},"standings":[]}'),
    (b'{"n":1e400,"m":"\xff","by":"ann","by":1,"standings":[]}',
     b'{"n":1e400,"m":"\xff","by":1,"standings":[]}'),
    (b'{"standings":[{"player":"ann","note":{"by":"ann","by":1}}]}',
     b'{"standings":[{"player":"x-1","note":{"by":1}}]}'),
])  # fmt: skip
def test_an_id_under_a_key_that_is_given_twice(value: bytes, expected: bytes) -> None:
    """All readers take the last value. The others are not copied if the id is in one of them."""
    assert renamed(value) == expected


def test_keys_given_twice_otherwise() -> None:
    """In MessagePack they are the same. A record without the id keeps its bytes."""
    assert renamed(b"\x82\xa4note\xa3ann\xa4note\xa1b", MSGPACK_HEADERS) == b"\x81\xa4note\xa1b"
    for value in (b'{"note":1, "note":"hannah"}', b'{"note":"\\n", "note":"ann"}'):
        assert renamed(value) == value


@cases("to", [TO, ODD])
@cases("parts", [("l:1", "r:1"), ("l:1", "correction", "7")])
def test_events_have_another_key_and_id(to: Pseudonym, parts: tuple[str, ...]) -> None:
    """And the same numbers, at the same offset in the rounds."""
    reported = b'{"event_id":%b,"player":%b,"mu":1.50,"offset":7}'
    names = to.player, to.name
    ids = [joined(*parts, name) for name in names]
    values = [reported % tuple(map(to_json, both)) for both in zip(ids, names, strict=True)]
    keys = [joined(parts[0], name).encode() for name in names]
    headers = [[("ce_id", i.encode()), ("traceparent", b"t")] for i in ids]
    assert to.is_key(keys[0]) and not to.is_key(keys[1]) and not to.is_key(None)
    found = to.event(Record(2, 9, values[0], headers[0], key=keys[0]))
    assert found == Record(2, 9, values[1], headers[1], key=keys[1])
    assert to.event(Record(2, 9, None, key=keys[0])) == Record(2, 9, None, key=keys[1])


def test_notes_of_corrections_are_renamed() -> None:
    """All others stay as they are, and what is no note is left out."""
    other = encode_histories("noted", {"l": ["0:x"]})[0]
    merged = {"ladder": "l", "player": "ann", "into": "bob"}
    recorded = [
        RecordedCorrection(3, "player-merged", msgspec.Raw(to_json(merged)), 3),
        RecordedCorrection(4, "round-voided", msgspec.Raw(to_json({"round_id": "ann"})), 5),
    ]
    (own,) = encode_corrections({"l": recorded})
    voided = encode_corrections({"l": recorded[1:]})
    assert TO.ladder_events(other) == [other] and TO.ladder_events(voided[0]) == voided
    assert TO.ladder_events(b"ann") == TO.ladder_events(b'{"kind":"ann"}') == []
    log = LadderLog()
    for each in TO.ladder_events(own):
        log.read(each)
    first, second = log.corrections["l"]
    assert (first.place, second) == ((3, 3), recorded[1])
    assert msgspec.json.decode(first.correction) == {"ladder": "l", "player": "x-1", "into": "bob"}


# --- the log -------------------------------------------------------------------------------------


LOG = [
    record_of(as_json(round_id="r0"), offset=2),
    record_of(b"ann", offset=3),
    record_of(as_json(round_id="r0"), offset=4),
    record_of(as_json(*ranked([1, 2]), round_id="r1"), offset=7),
]
"""A transaction's end is at offset 0, 1, 5, 6 and 8."""
FLAGGED = list(zip(LOG, [True, False, False, True], strict=True))


def test_each_record_stays_at_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty record is where one was rejected or is absent. Verdicts cannot be left out."""
    monkeypatch.setattr("stream_rater.operations.rewriting.AT_ONCE", 2)
    assert list(flagged(LOG, ANY_LADDER, 10, 0, None)) == FLAGGED
    found = list(rewritten(FLAGGED, {0: 9, 1: 2}, TO))
    places = [(each.partition, each.offset) for each in found]
    assert places == [(0, offset) for offset in range(9)] + [(1, 0), (1, 1)]
    kept = {each.offset: each for each in found if each.value is not None}
    assert kept == {2: TO.record(LOG[0]), 7: LOG[3]}
    voided = to_json({"ladder": "ranked-eu", "round_id": "r0"})
    with pytest.raises(MissingVerdicts):
        list(flagged([record_of(voided, correction("round-voided"))], ANY_LADDER, 10, 0, None))


def test_what_the_log_says_of_the_player() -> None:
    """How many accepted records name the player, by kind, and where pseudonym or id remain."""
    mentions = Mentions(None)
    last = record_of(as_json(*ranked([1, 2], ["x-1", "bob"]), round_id="ann"), offset=9)
    mentions.read([*FLAGGED, (last, True)], TO)
    assert (mentions.named, mentions.accepted, mentions.rejected) == ({"round": 1}, 3, 2)
    assert mentions.conflict == "partition 0, offset 9"
    assert (mentions.left, mentions.places) == (1, ["partition 0, offset 9: round_id"])
    mentions.read(MOST_PLACES * [(last, True)], TO)
    assert (mentions.left, len(mentions.places)) == (1 + MOST_PLACES, MOST_PLACES)
    with pytest.raises(BadConfiguration, match=r"'x-1' is a player already \(partition 0, off"):
        check_mentions(mentions, TO)
    with pytest.raises(Failed, match="unknown-player: no accepted record names 'ann'"):
        check_mentions(Mentions(None, accepted=5), TO)
    check_mentions(Mentions(None, Counter(correction=1)), TO)
    check_mentions(Mentions(None, Counter(seed=1)), TO)
    mentions, of_player = Mentions(None), {"player": "ann"}
    log = [record_of(as_json(round_id="r0"))]
    log.append(record_of(to_json({"players": [of_player]}), correction("players-seeded")))
    for kind in ("player-reset", "player-removed"):
        log.append(record_of(to_json(of_player), correction(kind)))
    mentions.read([(each, True) for each in log], TO)
    assert str(mentions) == "1 round, 2 seeds and 1 correction"
    assert str(Mentions(None, Counter(round=2))) == "2 rounds and 0 corrections"


def test_the_pseudonym_comes_where_the_id_came() -> None:
    """That is among accounts merged into the same one. The lesser name of two who meet stays."""
    merged = EditsSoFar()
    for each in ("bob", "ann", "cy"):
        merged.change(each, "zoe")
    mentions = Mentions(Verdicts({"l": NO_EDITS, "m": merged.edits}, {}), Counter(round=1))
    for player, name in (("ann", "aa"), ("bob", "b"), ("cy", "z"), ("zoe", "a"), ("dee", "a")):
        check_mentions(mentions, Pseudonym(player, name))
    for player, name, cure in (
        ("ann", "bx", "comes before 'bob', as the id does"),
        ("cy", "a", "comes after 'bob', as the id does"),
        ("bob", "d", "comes before 'cy', as the id does"),
    ):
        with pytest.raises(BadConfiguration, match=f"on ladder 'm' the player and .* {cure}"):
            check_mentions(mentions, Pseudonym(player, name))


# --- what is compared ----------------------------------------------------------------------------


def digest(corrected: bool, **fields: float) -> bytes | None:
    player, header = ("l", "ann"), {"rounds": 1, "last": 7} | fields
    return digests_of([[(player, a_belief(**header))]], {"l"} if corrected else set()).get(player)


def test_all_of_a_belief_is_compared() -> None:
    """Where there are corrections, not what they set in their way. All differences are reported."""
    for name in ("mu", "sigma", "time", "season", "rounds"):
        assert digest(False, **{name: 5}) != digest(False), name
        assert digest(True, **{name: 5}) != digest(True), name
    for name in ("last", "previous_mu", "previous_time", "untold"):
        assert digest(False, **{name: 1}) != digest(False), name
        assert digest(True, **{name: 1}) == digest(True), name
    assert digest(True, rounds=0) is None
    one, two, three = ("l", "a"), ("l", "b"), ("l", "c")
    assert difference({one: b"1"}, {one: b"1"}) == ""
    for before, after, found in (
        ({one: b"1", two: b"2"}, {one: b"3", three: b"2"}, "1 beliefs are different, 1 missing"),
        ({one: b"1"}, {}, "0 beliefs are different, 1 missing"),
        ({}, {one: b"1"}, "0 beliefs are different, 0 missing"),
    ):
        surplus = len(after.keys() - before.keys())
        assert (
            difference(before, after)
            == f"{found} and {surplus} too many, first ladder 'l', player 'a'"
        )


# --- words ---------------------------------------------------------------------------------------


def test_a_pseudonym_is_random_unless_it_is_named() -> None:
    """It shows nothing of the id. Ratings of another kernel cannot be compared."""
    first, second = (pseudonym_of("ann", None).name for _ in range(2))
    assert first != second and first.startswith("erased-") and len(first) == len("erased-") + 16
    assert pseudonym_of("ann", "x").name == "x"
    with pytest.raises(Failed, match=r"kernel version 1, .* `stream-rater rebuild --repl"):
        check_kernel(1)


@cases(
    ("player", "name", "says"),
    [
        ("", None, "PLAYER: bad-id: empty"),
        ("a" * 129, None, "PLAYER: bad-id: over 128 bytes"),
        ("\udcff", None, "PLAYER: bad-id: not UTF-8"),
        ("ann", "", "--pseudonym: bad-id: empty"),
        ("ann", "ann", "--pseudonym: 'ann' is the player's id"),
    ],
)
def test_ids_that_are_none_are_refused(player: str, name: str | None, says: str) -> None:
    """With the word that holds them."""
    with pytest.raises(BadConfiguration, match=says):
        pseudonym_of(player, name)
