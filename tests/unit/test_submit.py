"""`submit`: rounds and corrections of a file, each validated, in the order of the file."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.cli import app
from stream_rater.config.settings import Settings
from stream_rater.operations import submit as operation
from tests.rounds import event, ranked

Lines = list[dict[str, Any]]


class Kafka:
    """What is sent, in the place of a Submitter."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, bytes]] = []
        self.failures: list[str] = []

    def submit(self, ladder: str, round_id: str, completed_at: str, value: bytes) -> None:
        self.sent.append((ladder, "", value))

    def correct(self, ladder: str, kind: str, value: bytes, subject: str) -> None:
        self.sent.append((ladder, kind, value))

    def flush(self) -> None:
        pass


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kafka]:
    topics, taken = Topics.of(Settings()), Kafka()
    admin = SimpleNamespace(topics=topics, partitions=lambda: {topics.rounds: 4})
    monkeypatch.setattr(operation, "Admin", lambda _: admin)
    monkeypatch.setattr(operation, "Submitter", lambda *_: taken)
    yield taken


def submit(folder: Path, lines: Lines) -> Result:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return CliRunner().invoke(app.main, ["submit", str(path)])


CORRECTIONS: Lines = [
    {"event_type": "round-voided", "ladder": "l", "round_id": "r1"},
    {"event_type": "round-amended", "ladder": "l", "round_id": "r1", "standings": ranked([2, 1])},
    {"event_type": "player-removed", "ladder": "m", "player": "p0", "batched": True},
    {"event_type": "player-merged", "ladder": "l", "player": "p0", "into": "p1"},
    {"event_type": "season-started", "ladder": "l", "season": 2, "keep": 0.5, "sigma": 200},
    {"event_type": "corrections-applied", "ladder": "m"},
]
ROUND = event(*ranked([1, 2]), round_id="r1", ladder="l")


SEED: dict[str, Any] = {
    "event_type": "players-seeded", "ladder": "l", "round_id": "s1", "at": "2026-01-01T00:00:00Z",
    "players": [{"player": "p0", "mu": 1600, "sigma": 100}],
}  # fmt: skip
RESET = {
    "event_type": "player-reset", "ladder": "m", "round_id": "s2", "at": "2026-01-01T00:00:00Z",
    "player": "p0", "sigma": 200,
}  # fmt: skip


def test_seeds_are_sent_as_such(kafka: Kafka, tmp_path: Path) -> None:
    """Under their ladder and kind, in the order of the file."""
    lines = [SEED, ROUND, RESET]
    result = submit(tmp_path, lines)
    assert result.exit_code == 0
    assert result.stderr == "1 round and 2 seeds sent\n"
    assert [each[:2] for each in kafka.sent] == [
        ("l", "players-seeded"), ("l", ""), ("m", "player-reset"),
    ]  # fmt: skip
    assert [json.loads(value) for _, _, value in kafka.sent] == lines


def many(count: int, name: str = "p{}") -> Lines:
    return [{"player": name.format(i), "mu": 1600} for i in range(count)]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"players": [{"player": "p0", "mu": 1600, "sigma": 0}]}, "bad-seed: players[0].sigma: 0"),
        ({"players": [{"player": "p0", "mu": 16e9}]}, "bad-seed: players[0].mu: 1.6e+10"),
        ({"players": many(1) * 2}, "bad-id: player 'p0' stands in the seed twice"),
        ({"players": []}, "bad-seed: players: 0, a seed has from 1 to 5,000"),
        ({"players": many(5001)}, "bad-seed: players: 5001, a seed has from 1 to 5,000"),
        ({"players": many(5000, "p{:0120}")}, "too-large: "),
        ({"at": "yesterday"}, "bad-time: at: "),
        ({"at": "2126-01-01T00:00:00Z"}, "bad-time: at: over"),
        ({"round_id": ""}, "bad-id: round_id: empty"),
        ({"more": 1}, "malformed: "),
    ],
)
def test_bad_seeds_are_not_sent(
    kafka: Kafka, tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    """Each has its line and its code; all others are sent."""
    result = submit(tmp_path, [ROUND, {**SEED, **changed}, RESET])
    assert result.exit_code == 1
    assert f"a.jsonl:2: {says}" in result.stderr
    assert "1 round and 1 seed sent\n" in result.stderr
    assert [kind for _, kind, _ in kafka.sent] == ["", "player-reset"]


def test_corrections_are_sent_as_such(kafka: Kafka, tmp_path: Path) -> None:
    """Each at its place, as the line says, under its ladder and kind; the count says how many."""
    lines = [ROUND, *CORRECTIONS, ROUND]
    result = submit(tmp_path, lines)
    assert result.exit_code == 0
    assert result.stderr == "2 rounds and 6 corrections sent\n"
    assert kafka.sent == [
        (each["ladder"], each.get("event_type", ""), json.dumps(each).encode()) for each in lines
    ]


def test_rounds_alone_are_sent_as_ever(kafka: Kafka, tmp_path: Path) -> None:
    """With the count of before, and without a header if they name their own kind."""
    result = submit(tmp_path, [ROUND, ROUND | {"event_type": "round-completed"}])
    assert result.stderr == "2 rounds sent\n"
    assert [kind for _, kind, _ in kafka.sent] == ["", ""]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"event_type": "round-avoided"}, "malformed: event-type 'round-avoided' is none of"),
        ({"event_type": "round-voided"}, "malformed: Object missing required field `round_id`"),
        ({"event_type": "season-started", "season": 0}, "bad-season: "),
        ({"event_type": "round-amended", "round_id": "r1", "standings": ranked([1, 2, -2])},
         "bad-rank: standings[2]"),
    ],
)  # fmt: skip
def test_a_bad_correction_is_reported_with_its_line(
    kafka: Kafka, tmp_path: Path, line: dict[str, Any], message: str
) -> None:
    """The others are sent; the exit code is 1."""
    result = submit(tmp_path, [ROUND, {"ladder": "l", **line}, CORRECTIONS[0]])
    assert (result.exit_code, len(kafka.sent)) == (1, 2)
    assert f"a.jsonl:2: {message}" in result.stderr
    assert "1 round and 1 correction sent" in result.stderr
