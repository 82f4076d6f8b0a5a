"""Which of a record's mistakes is reported, and in which words. `rejections.json` has the answers;
`python -m tests.golden.test_rejections` writes them again, if the contract changes."""

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from stream_rater.config.ladders import Ladder, Ladders, Limits
from stream_rater.contract.errors import ROUND_REJECTIONS
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import EloMMR
from stream_rater.rounds.decoder import RoundDecoder
from tests.rounds import MSGPACK_HEADERS, event

ANSWERS = Path(__file__).with_name("rejections.json")

RECEIVED_S = 1_795_205_706.0
LIMITS = Limits(max_entries=9, max_weight=10.0, max_skew_s=60)
LADDERS = Ladders(
    ladders={
        "ranked-eu": Ladder(
            rating=EloMMR(weight_limit=0.2, sigma_limit=80.0, seats={"home": 60.0}), limits=LIMITS
        )
    },
    limits=Limits(max_bytes=3000),
)
PARTITIONS = 4
HOME = 2  # The ladder's partition.

Answer = list[str]  # Code, message, and whose it is: ladder, round id; empty if valid.

Lines = list[dict[str, Any]]


def lines() -> Lines:
    """The lines of a valid round: a tie, a team with shares, and entries that did not finish."""
    return [
        {"player": "zoe", "rank": 4}, {"player": "ann", "rank": 3}, {"player": "bob", "rank": 3},
        {"team": ["x", "y"], "shares": [1, 0.5], "rank": 1}, {"player": "dee", "dnf": True},
        {"team": ["u", "v"], "dnf": True},
    ]  # fmt: skip


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


AROUND: dict[str, dict[str, Any]] = {
    "too-large": {"pad": " " * 3000}, "too-deep": {"pad": nested(16)},
    "round_id is a number": {"round_id": 5}, "ladder is a list": {"ladder": ["ranked-eu"]},
    "completed_at is a number": {"completed_at": 1_795_205_705},
    "weight is a text": {"weight": "1"}, "ceiling is a text": {"performance_ceiling": "high"},
    "standings are null": {"standings": None}, "round_id is empty": {"round_id": ""},
    "round_id is long": {"round_id": "é" * 65}, "ladder is empty": {"ladder": ""},
    "ladder is long": {"ladder": "x" * 129}, "ladder is unknown": {"ladder": "ranked-us"},
    "time is long": {"completed_at": "2026-11-20T20:15:05." + "0" * 60 + "Z"},
    "time is none": {"completed_at": "yesterday"},
    "time is early": {"completed_at": "1899-12-31T23:59:59Z"},
    "time is ahead": {"completed_at": "2026-11-20T20:16:07Z"}, "weight is 0": {"weight": 0},
    "weight is large": {"weight": 10.5}, "ceiling is low": {"performance_ceiling": -2e9},
}  # fmt: skip
"""Mistakes in the fields around the list."""

LINES: dict[str, dict[str, Any]] = {  # Wrong lines, each for a right one.
    "rank is a text": {"rank": "2"}, "dnf is a number": {"player": "k", "dnf": 1},
    "player is a number": {"player": 7, "rank": 1},
    "team has a number": {"team": ["k", 7], "rank": 1},
    "share is a text": {"team": ["k", "l"], "rank": 1, "shares": [1, "1"]},
    "neither rank nor dnf": {"player": "k"}, "rank is 0": {"player": "k", "rank": 0},
    "rank is large": {"player": "k", "rank": 2**31 - 1},
    "rank is larger": {"player": "k", "rank": 2**63}, "nobody": {"rank": 1},
    "an empty team": {"team": [], "rank": 1},
    "a player and a team": {"player": "k", "team": ["l"], "rank": 1},
    "too few shares": {"team": ["k", "l"], "rank": 1, "shares": [1]},
    "shares for a player": {"player": "k", "rank": 1, "shares": []},
    "a share of 0": {"team": ["k", "l"], "rank": 1, "shares": [0, 1]},
    "a share over 1": {"team": ["k", "l"], "rank": 1, "shares": [1, 1.5]},
    "a long seat": {"player": "k", "rank": 1, "seat": "upstairs!"},
    "a seat is a number": {"player": "k", "rank": 1, "seat": 7},
    "player is empty": {"player": "", "rank": 1},
    "player is long": {"player": "x" * 129, "rank": 2},
    "player stands twice": {"player": "zoe", "rank": 1},
    "another stands twice": {"team": ["bob", "x"], "dnf": True},
    "in a team twice": {"team": ["k", "k"], "rank": 9},
}  # fmt: skip

COUNTS = {"too-few-entries": 1, "too-many-entries": 10}
RECORDS = ("unreadable", "cut", "wrong-partition")
MISTAKES = (*RECORDS, *AROUND, *LINES, *COUNTS)


def with_mistakes(mistakes: dict[str, int]) -> dict[str, Any]:
    """The round with these mistakes. The number says in which line a mistake of a line is."""
    some = lines()
    for mistake, at in mistakes.items():
        if mistake in LINES:
            some[at] = LINES[mistake]
    for mistake in mistakes:
        if mistake == "too-few-entries":
            some = some[1:2]
        elif mistake == "too-many-entries":
            some += [{"player": f"p{i}", "rank": 7} for i in range(5)]
    around: dict[str, Any] = {}
    for mistake in mistakes:
        around |= AROUND.get(mistake, {})
    return {**event(*some), **around}


def records(mistakes: dict[str, int]) -> Iterator[Record]:
    message = with_mistakes(mistakes)
    for encode, headers in ((msgspec.json.encode, []), (msgspec.msgpack.encode, MSGPACK_HEADERS)):
        value = encode(message)
        if "cut" in mistakes:
            value = value[:-1]
        yield Record(
            HOME + ("wrong-partition" in mistakes), 7, value, headers, received_s=RECEIVED_S,
            unreadable="its batch is a bomb" if "unreadable" in mistakes else "",
        )  # fmt: skip


def cases() -> Iterator[dict[str, int]]:
    """No mistake, each mistake alone, and each pair, in either order if both are in lines."""
    yield {}
    for mistake in MISTAKES:
        yield {mistake: 1}
    for one, other in combinations(MISTAKES, 2):
        yield {one: 1, other: 2}
        if one in LINES and (other in LINES or other in COUNTS):
            yield {one: 2, other: 1}


def answers(*, together: bool) -> dict[str, list[Answer]]:
    """The answers to each case in JSON and MessagePack, read alone or all in one call."""
    of = {", ".join(f"{name} @{at}" for name, at in each.items()): each for each in cases()}
    asked = [record for each in of.values() for record in records(each)]
    decoder = RoundDecoder(LADDERS, PARTITIONS)
    found = iter(
        [
            [] if no is None else [no.code, str(no), no.ladder, no.round_id]
            for some in ([asked] if together else ([each] for each in asked))
            for no in decoder.decode(some)[1]
        ]
    )
    return {name: [next(found), next(found)] for name in of}


def test_refusals_are_those_of_the_contract() -> None:
    """Codes, messages and subjects are those of `rejections.json`, read alone or in one call."""
    wanted = json.loads(ANSWERS.read_text())
    for together in (False, True):
        found = {name: _merged(each) for name, each in answers(together=together).items()}
        differing = {k: (found.get(k), wanted.get(k)) for k in found.keys() | wanted.keys()}
        differing = {k: v for k, v in differing.items() if v[0] != v[1]}
        assert differing == {}, "meant so? python -m tests.golden.test_rejections writes them"


def test_every_code_has_a_case() -> None:
    """All but one code, which needs two rounds, have a case, and so has a valid round."""
    codes = {each[0] for found in answers(together=True).values() for each in found if each}
    assert codes == ROUND_REJECTIONS.keys() - {"bad-score", "duplicate-round"}
    assert answers(together=False)[""] == [[], []]


def _merged(found: list[Answer]) -> list[Answer]:
    """One answer, where both encodings have the same."""
    return found[:1] if found[0] == found[1] else found


if __name__ == "__main__":
    rows = (
        f"{json.dumps(name)}: {json.dumps(_merged(each), ensure_ascii=False)}"
        for name, each in answers(together=False).items()
    )
    ANSWERS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
