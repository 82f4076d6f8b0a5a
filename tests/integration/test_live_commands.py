"""Commands on a real log: to which places corrections go; `predict` and a dry run, which say the
same of a file with its lines; what `tune` proposes, and that it changes nothing."""

import json
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Message

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.columns.sharding import partition_of
from stream_rater.config.files import read_ladders, read_rating
from stream_rater.config.settings import Settings
from stream_rater.contract.record import header
from tests.benchmarks.lab import game
from tests.builders.commands import as_file
from tests.builders.lines import Line, a_correction, a_message, a_round
from tests.integration.processes import Start, done, refused, stream_rater
from tests.integration.test_corrections import RANKED, correct, published_events, season
from tests.integration.topics import client_of, headers_of, produce, rated, read_topic
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


def test_a_dry_run_rates_the_live_log(settings: SettingsFactory, tmp_path: Path) -> None:
    """It prints the same as for the file that was sent, and sends nothing itself."""
    at, file = settings(), some_rounds(tmp_path)
    done(at, "submit", file)
    words = ["correct", "remove", LADDERS[0], "ann", "p2", "--dry-run", "--format", "json"]
    assert done(at, *words) == done(at, *words, "--file", file) != ""
    assert len(corrections(at)) == 1
    again = stream_rater("correct", "void", LADDERS[0], "r1", "--dry-run", settings=at)
    assert again.returncode == 1 and "already-voided" in again.stderr
    done(at, *words[:5])
    gone = stream_rater(*words[:4], "--dry-run", settings=at)
    assert gone.returncode == 1 and "unknown-player" in gone.stderr


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
    """Beliefs, probabilities and changes are equal to the last bit, with the ladder's corrections.
    A side of newcomers is no error. Nothing is written. One line says what cannot be predicted: an
    unknown ladder (with the nearest name), another ladders file, removed players."""
    at, rounds = settings(shards=3), list(season(0, 60))
    worker_process(at)
    rated(at, *rounds)
    correct(at, "merge", RANKED, "p0-2", "p0")
    correct(at, "season", RANKED, "2", "--keep", "0.5", "--sigma", "200")
    lines = [json.loads(each.value or b"") for each in rounds]
    file = as_file(tmp_path / "rounds.jsonl", [*lines, *CORRECTIONS])
    asked = ["--ladder", RANKED, *SIDES, "--ranks", "2,-,1"]
    live, before = predict(at, *asked), published_events(at)
    assert live == predict(at, "--file", file, *asked)
    dealt = ["--ladder", RANKED, ",".join(f"p{i}" for i in range(8)), "--teams", "2"]
    assert predict(at, *dealt) == predict(at, "--file", file, *dealt)
    assert published_events(at) == before
    nobody = predict(at, "--ladder", RANKED, "x", "y")
    assert [side["win"] for side in nobody["sides"]] == [0.5, 0.5]

    correct(at, "remove", RANKED, "p1")
    other = tmp_path / "ladders.toml"
    other.write_text('[ladders."*".rating]\nsystem = "topcoder"\n')
    others = msgspec.structs.replace(at, ladders=str(other))
    for place, ladder, sides, code, why in (
        (at, "rankd", ["p2", "p3"], 1, "ladder 'rankd' has no players: no round of it was rated; "
         "the nearest name is 'ranked'"),
        (at, RANKED, ["p1", "p3"], 1, "player 'p1' was removed from ladder 'ranked'"),
        (others, RANKED, ["p2", "p3"], 2, f"ladder 'ranked': the ladders file {other} and the "
         "notes on Kafka differ"),
    ):  # fmt: skip
        ended = stream_rater("predict", "--ladder", ladder, *sides, settings=place)
        assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
        assert ended.stderr.startswith(f"stream-rater: {why}") and ended.stderr.count("\n") == 1


# --- tune ---

TUNED, SHORT = "ranked", "duels"
FILE = """
[ladders.ranked]
rating = { system = "codeforces", beta = 200, weight = 0.002 }

[ladders.duels]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }
"""
"""With the parameters of `ranked`, ratings hardly move."""
WORDS = ["tune", "--from-topic", "--trials", "40", "--workers", "1", "--ladder"]


def a_season(count: int, ladder: str) -> list[Line]:
    return [
        a_round(number, *(f"p{row}" for row in each.rows.tolist()), ladder=ladder)
        for number, each in enumerate(game.season(game.Kind(20, count, 6), 4))
    ]


def reported(at: Settings, folder: Path) -> Settings:
    """A season of one ladder, some rounds of another, a correction, and a record of no round."""
    ladders = folder / "ladders.toml"
    ladders.write_text(FILE)
    at = msgspec.structs.replace(at, ladders=str(ladders), partitions=1)
    lines = [*a_season(120, TUNED), *a_season(9, SHORT)]
    voided = a_correction("round-voided", ladder=TUNED, round_id="r3")
    file = as_file(folder / "rounds.jsonl", [*lines, voided])
    sent = stream_rater("submit", str(file), settings=at)
    assert (sent.returncode, sent.stderr) == (0, "129 rounds and 1 correction sent\n")
    produce(at, [a_message(a_season(1, TUNED)[0])])
    return at


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


def test_it_proposes_and_changes_nothing(settings: SettingsFactory, tmp_path: Path) -> None:
    """It prints a change of the ladders file from a future offset on, and the parameters as JSON.
    One line says what cannot be tuned: no topic, an unknown ladder, too few rounds. All else is as
    before."""
    bare = settings()
    nothing = stream_rater(*WORDS, TUNED, settings=bare)
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert f"topic {Topics.of(bare).rounds} does not exist" in nothing.stderr
    topics = client_of(bare).list_topics(timeout=STILL_S).topics
    assert not [name for name in topics if name.startswith(bare.topic_prefix)]

    at = reported(bare, tmp_path)
    before, out = there(at), tmp_path / "tuned.json"
    ended = stream_rater(*WORDS, TUNED, "--out", str(out), settings=at)
    assert ended.returncode == 0, ended.stderr
    assert there(at) == before
    first, *_, last = ended.stderr.splitlines()
    assert first == "ladder 'ranked': 119 rounds read, 1 rejected (1 duplicate-round)"
    assert last.startswith("better on rounds it had not seen: adopt it (better in log loss, -")
    file = tmp_path / "pasted.toml"
    file.write_text(FILE + ended.stdout)
    (change,) = read_ladders(file).ladders[TUNED].changes
    assert change.rating == read_rating(out)
    assert change.from_offset > before[2][-1][0]
    for ladder, why in (
        ("rankd", "ladder 'rankd' has no players: no round of it was rated; the nearest name is "
         "'ranked'"),
        (SHORT, "ladder 'duels': 4 rounds to tune on and 5 to compare on say who was better, and "
         "20 of each are needed: wait for more rounds, or choose another --train than 0.5"),
    ):  # fmt: skip
        ended = stream_rater(*WORDS, ladder, settings=at)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.splitlines()[-1] == f"stream-rater: {why}"
