"""Commands on a real log: to which places corrections go; `predict`, which says the same of a file
with the log's lines; and that `tune` changes nothing."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.columns.sharding import partition_of
from stream_rater.config.settings import Settings
from stream_rater.contract.record import header
from tests.builders.commands import as_file
from tests.builders.lines import a_correction, a_round
from tests.integration.processes import Start, done, refused, stream_rater
from tests.integration.test_corrections import RANKED, correct, published_events, season
from tests.integration.topics import client_of, headers_of, rated, read_topic
from tests.real import SettingsFactory
from tests.waits import STILL_S

LADDERS = [f"ladder-{number}" for number in range(3)]


# --- correct ---


def some_rounds(folder: Path) -> Path:
    """A file of some rounds on each ladder, and of a correction."""
    rounds = [a_round(i, "ann", f"p{i}", "bob", ladder=each) for i in range(5) for each in LADDERS]
    voided = a_correction("round-voided", ladder=LADDERS[0], round_id="r1")
    return as_file(folder / "rounds.jsonl", [*rounds, voided])


def corrections(at: Settings) -> list[Message]:
    """The records that are no rounds, each partition's in order."""
    records = read_topic(at, Topics.of(at).rounds)
    return [each for each in records if header(headers_of(each), "event-type")]


def test_corrections_lie_where_their_rounds_do(settings: SettingsFactory, tmp_path: Path) -> None:
    """A correction has its ladder as key and its kind in a header, also if it comes from a file.
    The command prints its place. Without the topic, it is refused."""
    at = settings()
    none = refused(at, "correct", "void", "l", "r1", code=2)
    assert f"topic {Topics.of(at).rounds} does not exist" in none
    sent = stream_rater("submit", str(some_rounds(tmp_path)), settings=at)
    assert (sent.returncode, sent.stderr) == (0, "15 rounds and 1 correction sent\n")
    (submitted,) = corrections(at)
    assert header(headers_of(submitted), "event-type") == "round-voided"
    printed = {each: done(at, "correct", "merge", each, "p1", "p2") for each in LADDERS}
    records = corrections(at)
    assert len(records) == 1 + len(LADDERS)
    assert len({record.partition() for record in records}) > 1
    for record in records:
        ladder = (record.key() or b"").decode()
        assert record.partition() == partition_of(ladder, at.partitions)
        assert json.loads(record.value() or b"")["ladder"] == ladder
        if (record.partition(), record.offset()) == (submitted.partition(), submitted.offset()):
            continue
        headers = headers_of(record)
        assert header(headers, "event-type") == header(headers, "ce_type") == "player-merged"
        where = f"partition {record.partition()}, offset {record.offset()}"
        assert printed.pop(ladder) == f"player-merged: {Topics.of(at).rounds}, {where}\n"


# --- predict ---

SIDES = ["p0-2,p1", "p2,new", "p3"]
CORRECTIONS = [
    {"event_type": "player-merged", "ladder": RANKED, "player": "p0-2", "into": "p0"},
    {"event_type": "season-started", "ladder": RANKED, "season": 2, "keep": 0.5, "sigma": 200.0},
]


def predict(at: Settings, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done(at, "predict", *words, "--format", "json", quiet=True))
    return found


def test_as_from_a_file(settings: SettingsFactory, worker_process: Start, tmp_path: Path) -> None:
    """Beliefs, probabilities and changes are equal to the last bit, with the ladder's corrections;
    of a file the model's, which it would calibrate. A side of newcomers is no error. Nothing is
    written. One line says what cannot be predicted: an unknown ladder (with the nearest name),
    removed players."""
    ladders = tmp_path / "ladders.toml"  # without one, a file of rounds has other parameters
    system = 'system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80'
    ladders.write_text(f'[ladders."*"]\nrating = {{ {system} }}\n')
    at, rounds = settings(shards=3, ladders=str(ladders)), list(season(0, 60))
    (line,) = worker_process(at).events("ladders file")
    digest = sha256(ladders.read_bytes()).hexdigest()
    assert (line["path"], line["sha256"]) == (str(ladders), digest)
    rated(at, *rounds)
    correct(at, "merge", RANKED, "p0-2", "p0")
    correct(at, "season", RANKED, "2", "--keep", "0.5", "--sigma", "200")
    lines = [json.loads(each.value or b"") for each in rounds]
    file = as_file(tmp_path / "rounds.jsonl", [*lines, *CORRECTIONS])
    asked, model = ["--ladder", RANKED, *SIDES, "--ranks", "2,-,1"], ["--variance-factor", "1"]
    live, before = predict(at, *asked), published_events(at)
    assert live == predict(at, "--file", file, *asked, *model)
    dealt = ["--ladder", RANKED, ",".join(f"p{i}" for i in range(8)), "--teams", "2"]
    assert predict(at, *dealt) == predict(at, "--file", file, *dealt, *model)
    assert published_events(at) == before
    nobody = predict(at, "--ladder", RANKED, "x", "y")
    assert [side["win"] for side in nobody["sides"]] == [0.5, 0.5]

    correct(at, "remove", RANKED, "p1")
    for ladder, player, why in (
        ("rankd", "p2", "no round of it was rated; the nearest name is 'ranked'"),
        (RANKED, "p1", "player 'p1' was removed from ladder 'ranked'"),
    ):
        assert why in refused(at, "predict", "--ladder", ladder, player, "p3", code=1)


# --- tune ---


def there(at: Settings) -> tuple[set[str], set[str], list[tuple[Any, Any]]]:
    """Our topics, the consumer groups of ours and of commands, and all reported records."""
    client = client_of(at)
    ours = (at.topic_prefix, "stream-rater-")
    groups = client.list_consumer_groups().result(STILL_S).valid
    topics = client.list_topics(timeout=STILL_S).topics
    records = read_topic(at, Topics.of(at).rounds)
    return (
        {name for name in topics if name.startswith(ours)},
        {each.group_id for each in groups if each.group_id.startswith(ours)},
        [(each.offset(), each.value()) for each in records],
    )


def test_tune_changes_nothing(settings: SettingsFactory, tmp_path: Path) -> None:
    """It makes neither a topic nor a group, and reports nothing."""
    at, words = settings(partitions=1), ("tune", "--from-topic", "--ladder", LADDERS[0])
    assert f"topic {Topics.of(at).rounds} does not exist" in refused(at, *words, code=2)
    topics = client_of(at).list_topics(timeout=STILL_S).topics
    assert not [name for name in topics if name.startswith(at.topic_prefix)]
    done(at, "submit", some_rounds(tmp_path))
    before = there(at)
    ended = stream_rater(*words, settings=at)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "4 rounds read, 0 rejected" in ended.stderr
    assert there(at) == before
