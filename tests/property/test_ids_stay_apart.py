"""Ids of any text never meet in a key, never reach into another one, and never break a log line."""

import io
import json
import zlib
from contextlib import redirect_stderr

import pytest
import structlog
from hypothesis import example, given
from hypothesis import strategies as st

from stream_rater.adapters.redis.keys import belief_key, position_key
from stream_rater.config.ladders import Ladders
from stream_rater.contract import events
from stream_rater.contract.events import joined, shown
from stream_rater.contract.record import Record
from stream_rater.pipeline.ports import Rejection
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime import log
from stream_rater.runtime.metrics import Metrics, ServiceObserver
from tests.fuzz.outcome import READER
from tests.rounds import Reader, as_json

nasty = st.sampled_from((":", "%", "{", "}", "%3A", "%25", "\n", "\r", "\0", "*", "[", "\\", "a"))
ids = st.lists(nasty | st.text(max_size=4), min_size=1, max_size=8).map("".join)
"""Separators, what escapes them, what patterns match, and any Unicode but surrogates."""
three = st.tuples(ids, ids, ids)


@given(three, three)
@example(("a:b", "c", "d"), ("a", "b:c", "d"))
@example(("a%3Ab", "c", "d"), ("a:b", "c", "d"))
def test_event_ids_meet_only_if_all_parts_do(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """`joined` is one to one, and its parts can be read back."""
    assert (joined(*one) == joined(*other)) == (one == other)
    assert [unescaped(part) for part in joined(*one).split(":")] == list(one)


def unescaped(part: str) -> str:
    for character in ":{}%":
        part = part.replace(f"%{ord(character):02X}", character)
    return part


@given(st.integers(0, 99), ids, ids, st.integers(0, 99), ids, ids, st.integers(1, 1024))
def test_beliefs_keys_stay_apart(
    shard: int, ladder: str, player: str, shard2: int, ladder2: str, player2: str, buckets: int
) -> None:
    """Two hash keys are one only for one shard, ladder and bucket; none is a position's key; and
    the only tag is the shard's, so that a key cannot move to another slot."""
    first, second = player.encode(), player2.encode()
    key = belief_key(shard, ladder, first, buckets)
    same = (shard, ladder, zlib.crc32(first) % buckets) == (
        shard2, ladder2, zlib.crc32(second) % buckets,
    )  # fmt: skip
    assert (key == belief_key(shard2, ladder2, second, buckets)) == same
    assert key != position_key(shard2)
    assert key.startswith(f"{{{shard}}}:") and key.count("{") == key.count("}") == 1


@given(ids, ids)
def test_a_log_line_is_one_line(ladder: str, player: str) -> None:
    """A rejection is logged as one line of JSON, whatever ids it has. The line contains them."""
    out = io.StringIO()
    with redirect_stderr(out):
        log.configure()
        observer = ServiceObserver(Metrics(), "estimator", log.logger("estimator"))
        for number, data in enumerate(
            (
                as_json({"player": player, "rank": 1}, {"player": player, "rank": 2}),
                as_json(ladder=ladder * 200),
            )
        ):
            with pytest.raises(Invalid) as rejection:
                READER.read(data)
            invalid = rejection.value
            record = Record(0, number, data)
            observer.round_rejected(
                Rejection(record, f"{number}", str(invalid), invalid.ladder, invalid.round_id)
            )
    structlog.reset_defaults()
    lines = out.getvalue().split("\n")
    assert len(lines) == 3 and lines[2] == "" and out.getvalue().isascii()
    assert [json.loads(line)["offset"] for line in lines[:2]] == [0, 1]
    assert json.loads(lines[1]).get("ladder", "") == (ladder * 200)[:128]
    if len(player.encode()) <= 128:
        assert repr(player) in json.loads(lines[0])["error"]


@given(ids)
def test_ids_on_a_terminal_cannot_command_it(text: str) -> None:
    """What is printed for people has no control characters and no line ends; plain ids stay. Events
    in JSON are one line, as `watch --json` prints them."""
    assert b"\n" not in events.to_json({"player": text})
    assert shown(text).isprintable()
    if text.isprintable():
        assert shown(text) == text


@given(ids, ids)
def test_rejections_reasons_are_printable(ladder: str, player: str) -> None:
    """So is each reason that names an id: it goes into headers, logs and `submit`'s output."""
    unknown = Reader(Ladders(ladders={}))
    for reader, data in (
        (READER, as_json({"player": player, "rank": 1}, {"player": player, "rank": 2})),
        (unknown, as_json(ladder=ladder)),
    ):
        with pytest.raises(Invalid) as rejection:
            reader.read(data)
        assert str(rejection.value).isprintable()
