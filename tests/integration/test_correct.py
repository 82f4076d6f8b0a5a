"""`correct` and `submit` on a real Kafka: where corrections come to lie, and as what."""

import json
from pathlib import Path

from confluent_kafka import Message

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.columns.sharding import partition_of
from stream_rater.config.settings import Settings
from stream_rater.contract.record import header
from tests import real
from tests.builders.lines import a_correction, a_round
from tests.integration.processes import stream_rater
from tests.integration.topics import headers_of, read_topic

LADDERS = [f"ladder-{number}" for number in range(3)]


def season(folder: Path) -> Path:
    rounds = [a_round(i, "ann", f"p{i}", "bob", ladder=each) for i in range(5) for each in LADDERS]
    voided = a_correction("round-voided", ladder=LADDERS[0], round_id="r1")
    path = folder / "rounds.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in [*rounds, voided]))
    return path


def corrections(at: Settings) -> list[Message]:
    """The records that are no rounds, each partition's in order."""
    records = read_topic(at, Topics.of(at).rounds)
    return [each for each in records if header(headers_of(each), "event-type")]


def test_corrections_lie_where_their_rounds_do(
    settings: real.SettingsFactory, tmp_path: Path
) -> None:
    """A correction has the ladder as the key and its kind in the header, also if it comes from a
    file. The command prints its place. Without the topic there is nothing to correct."""
    at = settings()
    none = stream_rater("correct", "void", "l", "r1", settings=at)
    assert none.returncode == 2
    assert f"topic {Topics.of(at).rounds} does not exist" in none.stderr.splitlines()[-1]
    sent = stream_rater("submit", str(season(tmp_path)), settings=at)
    assert (sent.returncode, sent.stderr) == (0, "15 rounds and 1 correction sent\n")
    (submitted,) = corrections(at)
    assert header(headers_of(submitted), "event-type") == "round-voided"
    printed = {}
    for ladder in LADDERS:
        done = stream_rater("correct", "merge", ladder, "p1", "p2", settings=at)
        assert done.returncode == 0, done.stderr
        printed[ladder] = done.stdout
    merges = [each for each in corrections(at) if each.offset() != submitted.offset() or
              each.partition() != submitted.partition()]  # fmt: skip
    assert len(merges) == len(LADDERS)
    for record in [*merges, submitted]:
        ladder = (record.key() or b"").decode()
        assert record.partition() == partition_of(ladder, at.partitions)
        assert json.loads(record.value() or b"")["ladder"] == ladder
    assert len({record.partition() for record in merges}) > 1
    for record in merges:
        headers = headers_of(record)
        assert header(headers, "event-type") == header(headers, "ce_type") == "player-merged"
        ladder = (record.key() or b"").decode()
        where = f"partition {record.partition()}, offset {record.offset()}"
        assert printed[ladder] == f"player-merged: {Topics.of(at).rounds}, {where}\n"


def test_a_dry_run_rates_the_live_log(settings: real.SettingsFactory, tmp_path: Path) -> None:
    """As it rates the file that was sent; it sends nothing. What was sent for good counts."""
    at, file = settings(), season(tmp_path)
    stream_rater("submit", str(file), settings=at)
    words = ["correct", "remove", LADDERS[0], "ann", "p2", "--dry-run", "--format", "json"]
    live = stream_rater(*words, settings=at)
    offline = stream_rater(*words, "--file", str(file), settings=at)
    assert live.returncode == offline.returncode == 0, live.stderr
    assert live.stdout == offline.stdout != ""
    assert len(corrections(at)) == 1
    again = stream_rater("correct", "void", LADDERS[0], "r1", "--dry-run", settings=at)
    assert again.returncode == 1 and "already-voided" in again.stderr
    wave = stream_rater("correct", "remove", LADDERS[0], "ann", "p2", settings=at)
    assert wave.returncode == 0, wave.stderr
    gone = stream_rater(*words[:4], "--dry-run", settings=at)
    assert gone.returncode == 1 and "unknown-player" in gone.stderr
