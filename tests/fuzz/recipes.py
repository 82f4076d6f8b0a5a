"""Almost valid messages, drawn by Hypothesis. A seeded generator makes inputs of each: it changes,
cuts, repeats and splices bytes, and makes lengths, numbers and nestings larger."""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.errors import ROUND_REJECTIONS
from stream_rater.contract.events import JSON, MSGPACK, parse_time
from stream_rater.rating.model import DID_NOT_FINISH
from stream_rater.rating.seats import NO_SEAT, is_seat, seat_name
from stream_rater.rounds.validation import Invalid
from tests.rounds import Reader, event

MUTATIONS = 32  # Inputs made from a message in each encoding, besides itself.

INTERESTING = [
    b"\x00", b"\xff", b"\x7f", b"\x80", b'"', b"\\", b"\\u", b"\\ud800", b"[", b"]", b"{", b"}",
    b",", b":", b"null", b"true", b"-", b"1e999", b"NaN", b"1" * 400, b"0." + b"9" * 400,
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\xc1", b"\xc0", b"\xd9\xff",
    b"\xdb\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdc\xff\xff",
    b"\xc6\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\xff", b"\xcf" + b"\xff" * 8, b"\x91" * 40,
    b"\x81\xa0" * 40, b"[" * 40, b'{"a":' * 40,
]  # fmt: skip

FIELDS = (
    "round_id", "ladder", "completed_at", "standings", "weight", "performance_ceiling", "player",
    "rank", "dnf", "team", "shares", "seat", "score", "x",
)  # fmt: skip

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
    | st.text(max_size=8) | st.binary(max_size=8)
    | st.sampled_from(("ann", "bob", "2026-11-20T20:15:05Z", "x" * 129, "", 1, 2, 2**31, 0.5))
)  # fmt: skip
anything = scalars | st.lists(scalars, max_size=3) | st.dictionaries(
    st.sampled_from(FIELDS), scalars, max_size=2
)  # fmt: skip
damage = st.fixed_dictionaries(
    {},
    optional={
        "player": st.none() | st.sampled_from(("ann", "bob", "p0")) | anything,
        "rank": st.integers(-1, 5) | anything,
        "dnf": st.booleans() | anything,
        "team": st.lists(st.sampled_from(("u", "v", "w")), max_size=3) | anything,
        "shares": st.lists(st.floats(0.0, 1.0), max_size=3) | anything,
        "seat": st.sampled_from(("home", "away", "")) | anything,
        "score": st.integers(-9, 9) | st.floats() | anything,
    },
)


def _rarely(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value of the strategy in a quarter of the cases, else None."""
    return st.tuples(st.integers(0, 3), strategy).map(lambda drawn: None if drawn[0] else drawn[1])


entries = _rarely(damage | scalars)  # What is wrong with an entry: nothing, some fields, or all.
fields = _rarely(st.dictionaries(st.sampled_from(FIELDS), anything, max_size=2))


def _message(wrong: list[Any], outer: dict[str, Any] | None) -> Any:
    standings: list[Any] = [{"player": f"p{i}", "rank": 1 + i // 2} for i in range(len(wrong))]
    for i, each in enumerate(wrong):
        if isinstance(each, dict):
            standings[i] |= each
        elif each is not None:
            standings[i] = each
    return {**event(*standings), **(outer or {})}


messages: st.SearchStrategy[Any] = st.builds(_message, st.lists(entries, max_size=5), fields)


def inputs_of(message: Any, seed: int) -> Iterator[tuple[bytes, str]]:
    """Each input with its content type; the message itself first, noise last."""
    rng = random.Random(seed)
    for encode, content_type in ((msgspec.json.encode, JSON), (msgspec.msgpack.encode, MSGPACK)):
        try:
            whole = encode(message)
        except (UnicodeEncodeError, ValueError):  # surrogates that no encoder writes
            continue
        yield whole, content_type
        for _ in range(MUTATIONS):
            yield _mutated(whole, rng), content_type
    for content_type in (JSON, MSGPACK):
        yield rng.randbytes(rng.randrange(64)), content_type


def _mutated(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        data = rng.choice(_WAYS)(data, at, rng)
    return data


def _flip(data: bytes, at: int, rng: random.Random) -> bytes:
    changed = bytearray(data)
    if at < len(changed):
        changed[at] ^= 1 << rng.randrange(8)
    return bytes(changed)


_WAYS: tuple[Callable[[bytes, int, random.Random], bytes], ...] = (
    _flip,
    _flip,
    lambda data, at, rng: data[:at] + rng.choice(INTERESTING) + data[at:],
    lambda data, at, rng: data[:at] + rng.choice(INTERESTING) + data[at + 1 :],
    lambda data, at, rng: data[:at] + rng.randbytes(rng.randint(1, 4)) + data[at:],
    lambda data, at, rng: data[:at] + data[at + rng.randint(1, 8) :],
    lambda data, at, rng: data[:at],
    lambda data, at, rng: data[:at] + data[rng.randrange(len(data) + 1) :],
    lambda data, at, rng: data[:at] + data[at : at + 32] * rng.choice((2, 2, 2, 200)) + data[at:],
)


# --- what becomes of an input ---------------------------------------------------------------------

CODES = ROUND_REJECTIONS.keys() - {"bad-seat", "bad-score", "duplicate-round", "wrong-partition"}
"""The codes that depend on the value of one record only. The ladder uses no seats and scores."""

READER = Reader(ANY_LADDER)
RECEIVED = parse_time("2026-11-20T20:15:06Z")
TRIES = 20  # Further tries before an input counts as slow.


def check_outcome(data: bytes, content_type: str, reader: Reader = READER) -> str:
    """The code of Invalid, empty for standings. Raises whatever else the decoder raises."""
    try:
        found = reader.read(data, [("content-type", content_type.encode())], RECEIVED)
    except Invalid as rejection:
        assert rejection.code in CODES
        str(rejection).encode()  # a rejection has it in a header
        return rejection.code
    members = found.batch.members
    size = members.sum()
    assert size == len(found.players) == len(set(found.players)) == len(found.batch.share)
    assert all(0 < len(player.encode()) <= 128 for player in found.players)
    assert (found.batch.share > 0.0).all() and 0.0 < found.weight <= 1000.0
    ranked = found.place[found.place != DID_NOT_FINISH]
    assert (np.diff(ranked) >= 0).all() and (found.place[len(ranked) :] == DID_NOT_FINISH).all()
    assert (members > 0).all() and len(found.place) >= 2
    seat, score = found.batch.seat, found.batch.score
    assert len(seat) in (0, len(found.place)) and len(score) in (0, len(found.place))
    assert all(code == NO_SEAT or is_seat(seat_name(code)) for code in seat.tolist())
    assert not np.isinf(score).any()
    return ""


def timed_outcome(data: bytes, content_type: str, reader: Reader = READER) -> tuple[str, float]:
    """The result of check_outcome, and the seconds of CPU that it took."""
    began_s = time.thread_time()
    code = check_outcome(data, content_type, reader)
    return code, time.thread_time() - began_s


def least_s(took_s: float, bound_s: float, again: Callable[[], tuple[str, float]]) -> float:
    """An input's cost: the first try within the bound, or the least of all. A paused virtual
    machine counts its wait as CPU time: ten seconds for a hundred bytes were seen."""
    for _ in range(TRIES):
        if took_s <= bound_s:
            break
        took_s = min(took_s, again()[1])
    return took_s
