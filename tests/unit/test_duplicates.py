"""Verdicts: a pure function of a record and the W offsets before it."""

import random
import re
from itertools import product

import pytest

from stream_rater.columns.sharding import partition_of
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.record import Record
from stream_rater.replay.edited_log import RecordValidator
from stream_rater.rounds.validation import Invalid
from tests.rounds import as_json

WINDOW = 5


def record(offset: int, value: bytes, partition: int = 0) -> Record:
    """A record that arrived long after its round."""
    return Record(partition, offset, value, received_s=4e9)


def verdict(verdicts: RecordValidator, offset: int, value: bytes, partition: int = 0) -> str:
    """`valid`, or the code."""
    _, (rejection,) = verdicts.decode([record(offset, value, partition)])
    return "valid" if rejection is None else rejection.code


def named(round_id: str, ladder: str = "a") -> bytes:
    """A valid round of this name."""
    return as_json(round_id=round_id, ladder=ladder)


@pytest.fixture
def verdicts() -> RecordValidator:
    """Nothing read yet."""
    return RecordValidator(ANY_LADDER, WINDOW)


def test_duplicates_within_the_window(verdicts: RecordValidator) -> None:
    """Same ladder, same round id: rejected, with the place of the first. A repetition counts as an
    occurrence: else a verdict would hang on more than W offsets. Beyond W an id is new."""
    assert verdict(verdicts, 10, named("r")) == "valid"
    _, (rejection,) = verdicts.decode([record(15, named("r"))])
    assert rejection is not None and rejection.code == "duplicate-round"
    assert "stands at offset 10" in str(rejection)
    assert (rejection.ladder, rejection.round_id) == ("a", "r")
    assert verdict(verdicts, 19, named("r")) == "duplicate-round"
    assert verdict(verdicts, 25, named("r")) == "valid"


def test_who_takes_an_id(verdicts: RecordValidator) -> None:
    """A rejected round takes none: it may be reported again, mended. One that rates nobody is
    accepted, and its id counts as seen. Ids are unique per ladder."""
    bad = {"player": "ann", "rank": 0}, {"player": "bob", "rank": 1}
    spoilt = as_json(*bad, round_id="r", ladder="a")
    assert verdict(verdicts, 0, spoilt) == "bad-rank"
    assert verdict(verdicts, 1, named("r")) == "valid"
    assert verdict(verdicts, 2, named("r", "b")) == "valid"
    nobody = [{"player": p, "dnf": True} for p in ("ann", "bob")]
    assert verdict(verdicts, 3, as_json(*nobody, round_id="s", ladder="a")) == "valid"
    assert verdict(verdicts, 4, named("s")) == "duplicate-round"


def test_a_successor_that_reads_the_window_first_has_the_same_verdicts() -> None:
    """A successor who starts W offsets before c comes to the same verdicts from c on."""
    rng = random.Random(3)
    log = [
        b"junk" if rng.random() < 0.1 else named(f"r{rng.randrange(6)}", rng.choice("ab"))
        for _ in range(120)
    ]
    whole = RecordValidator(ANY_LADDER, WINDOW)
    expected = [verdict(whole, offset, value) for offset, value in enumerate(log)]
    assert set(expected) == {"valid", "malformed", "duplicate-round"}
    for c in range(0, len(log), 7):
        start = max(0, c - WINDOW)
        successor = RecordValidator(ANY_LADDER, WINDOW)
        found = [verdict(successor, o, value) for o, value in enumerate(log[start:], start)]
        assert found[c - start :] == expected[c:]


def test_many_records_as_one_by_one() -> None:
    """However many are read together, of several partitions and ladders, with duplicates or
    without, and with gaps between the offsets."""
    for at_once, share in product((2, 3, 50, 300), (0.0, 0.1, 0.4)):
        rng, ends, log = random.Random(at_once), [0, 0, 0], list[Record]()
        for number in range(300):
            partition = rng.choice([0, 0, 0, 1, 2])
            ends[partition] += rng.choice([1, 1, 1, 2, 4])
            old = number - rng.choice([1, 2, 4, 9])
            round_id = f"r{old if rng.random() < share else number}"
            log.append(record(ends[partition], named(round_id, rng.choice("ab")), partition))
        single, together = RecordValidator(ANY_LADDER, WINDOW), RecordValidator(ANY_LADDER, WINDOW)
        expected = [single.decode([each])[1][0] for each in log]
        found = list[Invalid | None]()
        for first in range(0, len(log), at_once):
            rounds, rejections = together.decode(log[first : first + at_once])
            assert len(rounds) == rejections.count(None)
            found += rejections
        assert list(map(str, found)) == list(map(str, expected)), (at_once, share)
        assert (len(set(map(str, expected))) > 1) == (share > 0.0), "duplicates"


def test_remembers_no_more_than_the_window(verdicts: RecordValidator) -> None:
    """Memory is bounded by W, with gaps in the offsets, too: it has the rounds of two spans of
    little more than W offsets."""
    for i in range(100):
        verdict(verdicts, 3 * i, named(f"r{i}", f"l{i}"))
        window = verdicts._duplicates[0]
        assert len(window._young) + len(window._old) <= 4


def test_a_round_in_another_ladders_partition() -> None:
    """It is rejected, and says what the producer must do; it does not count as seen."""
    home = partition_of("a", 4)
    verdicts = [RecordValidator(ANY_LADDER, WINDOW, 4) for _ in range(4)]
    found = {p: verdict(verdicts[p], 0, named("r"), p) for p in range(4)}
    assert found == {p: "valid" if p == home else "wrong-partition" for p in range(4)}
    other = (home + 1) % 4
    text = str(*verdicts[other].decode([record(1, named("s"), other)])[1])
    assert re.search(f"'a' has its rounds in partition {home}, .* in {other}", text)
    assert re.search(r"key must be the ladder, .* partitioner=murmur2_random", text)
