"""`tune --from-topic` on a real Kafka: what it proposes, and that it changes nothing there."""

import json
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka.admin import AdminClient

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.files import read_ladders, read_rating
from stream_rater.config.settings import Settings
from stream_rater.evaluation.research.synthetic import Kind, season
from tests import real
from tests.builders.lines import Line, a_correction, a_message, a_round
from tests.integration.processes import stream_rater
from tests.integration.topics import produce, read_topic
from tests.waits import STILL_S

LADDER, SHORT = "ranked", "duels"
FILE = """
[ladders.ranked]
rating = { system = "codeforces", beta = 200, weight = 0.002 }

[ladders.duels]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }
"""
"""With the first one's parameters ratings hardly move."""
WORDS = ["tune", "--from-topic", "--trials", "40", "--workers", "1", "--ladder"]


def rounds(count: int, ladder: str) -> list[Line]:
    return [
        a_round(number, *(f"p{row}" for row in each.rows.tolist()), ladder=ladder)
        for number, each in enumerate(season(Kind(20, count, 6), 4))
    ]


def reported(at: Settings, folder: Path) -> Settings:
    """A season of one ladder and a few rounds of another on Kafka, with a correction and a record
    that is no round; and the settings with their ladders file."""
    ladders = folder / "ladders.toml"
    ladders.write_text(FILE)
    at = msgspec.structs.replace(at, ladders=str(ladders), partitions=1)
    file = folder / "rounds.jsonl"
    lines = [*rounds(120, LADDER), *rounds(9, SHORT)]
    voided = a_correction("round-voided", ladder=LADDER, round_id="r3")
    file.write_text("".join(json.dumps(each) + "\n" for each in [*lines, voided]))
    sent = stream_rater("submit", str(file), settings=at)
    assert (sent.returncode, sent.stderr) == (0, "129 rounds and 1 correction sent\n")
    produce(at, [a_message(rounds(1, LADDER)[0])])
    return at


def there(at: Settings) -> tuple[set[str], set[str], list[tuple[Any, Any]]]:
    """Our topics, the groups that are ours or a command's, and what was reported."""
    client = AdminClient({"bootstrap.servers": at.kafka}, logger=CLIENT_LOGGER)
    ours = (at.topic_prefix, "stream-rater-")
    groups = client.list_consumer_groups().result(STILL_S).valid
    topics = client.list_topics(timeout=STILL_S).topics
    records = read_topic(at, Topics.of(at).rounds)
    return (
        {name for name in topics if name.startswith(ours)},
        {each.group_id for each in groups if each.group_id.startswith(ours)},
        [(each.offset(), each.value()) for each in records],
    )


def test_it_proposes_and_changes_nothing(settings: real.SettingsFactory, tmp_path: Path) -> None:
    """What it prints is a change of the ladders file, from an offset that the log has not reached,
    with the same parameters as JSON. What cannot be tuned is reported: no topic, an unknown ladder,
    with the nearest name, too few rounds, with how many. Topics, groups and records are as
    before."""
    bare = settings()
    nothing = stream_rater(*WORDS, LADDER, settings=bare)
    assert (nothing.returncode, nothing.stdout) == (2, "")
    assert f"topic {Topics.of(bare).rounds} does not exist" in nothing.stderr
    client = AdminClient({"bootstrap.servers": bare.kafka}, logger=CLIENT_LOGGER)
    topics = client.list_topics(timeout=STILL_S).topics
    assert not [name for name in topics if name.startswith(bare.topic_prefix)]

    at = reported(bare, tmp_path)
    before, out = there(at), tmp_path / "tuned.json"
    done = stream_rater(*WORDS, LADDER, "--out", str(out), settings=at)
    assert done.returncode == 0, done.stderr
    assert there(at) == before
    first, *_, last = done.stderr.splitlines()
    assert first == "ladder 'ranked': 119 rounds read, 1 rejected (1 duplicate-round)"
    assert last.startswith("adopt it: better in log loss, ")
    file = tmp_path / "pasted.toml"
    file.write_text(FILE + done.stdout)
    (change,) = read_ladders(file).ladders[LADDER].changes
    assert change.rating == read_rating(out)
    assert change.from_offset > before[2][-1][0]
    for ladder, why in (
        ("rankd", "ladder 'rankd' has no players: no round of it was rated; the nearest name is "
         "'ranked'"),
        (SHORT, "ladder 'duels': 4 rounds to tune on and 5 to compare on say who was better, and "
         "20 of each are needed: wait for more rounds, or choose another --train than 0.5"),
    ):  # fmt: skip
        done = stream_rater(*WORDS, ladder, settings=at)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[-1] == f"stream-rater: {why}"
