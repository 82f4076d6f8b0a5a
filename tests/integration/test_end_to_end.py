"""The whole path on real servers, compared with `rate` on the same rounds and configuration."""

import base64
import gzip
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Player
from stream_rater.rating.record import OFFSET_SIZE
from tests.integration.erasing import beliefs
from tests.integration.processes import PATIENTLY, Start, done, wait_until
from tests.integration.topics import Finished, published
from tests.real import SettingsFactory

ROUNDS = {"formula-one": 600, "codeforces": 10, "map-rando": 1000}
"""By ladder, the number of its first rounds that are rated."""
LADDERS = """
[ladders.formula-one.rating]
system = "elo-mmr"
weight_limit = 0.2
sigma_limit = 80
rho = 1.0
drift_per_day = 0.5

[ladders.codeforces]
rating = { system = "elo-mmr", weight_limit = 0.23, sigma_limit = 54, rho = 0.04 }

[ladders.map-rando]
rating = { system = "two-moment" }
"""


class Season(NamedTuple):
    rounds: Path
    ladders: Path
    beliefs: dict[Player, bytes]  # Records in Redis, with zeros for source offsets.
    results: Counter[tuple[str, str, str]]  # (ladder, round id, player), each once.


LAST = 6  # Where the source offset is in a record.


def _without_offset(record: bytes) -> bytes:
    """The record with zeros for its source offset, which depends on what else is in the topic."""
    return record[:LAST] + bytes(OFFSET_SIZE) + record[LAST + OFFSET_SIZE :]


@pytest.fixture(scope="module")
def season(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Season:
    folder = tmp_path_factory.mktemp("season")
    rounds, ladders, out = folder / "rounds.jsonl", folder / "ladders.toml", folder / "ratings"
    results: Counter[tuple[str, str, str]] = Counter()
    with rounds.open("wb") as file:
        for name, count in ROUNDS.items():
            with gzip.open(shared / "data" / f"{name}.jsonl.gz") as given:
                for line in itertools.islice(given, count):
                    file.write(line)
                    event = json.loads(line)
                    for entry in event["standings"]:
                        results[event["ladder"], event["round_id"], entry["player"]] += 1
    ladders.write_text(LADDERS)
    done(Settings(), "rate", rounds, "--ladders", ladders, "--records", "--out", out)
    beliefs = {
        (row["ladder"], row["player"]): _without_offset(base64.b64decode(row["record"]))
        for row in map(json.loads, out.open())
    }
    return Season(rounds, ladders, beliefs, results)


def test_a_killed_worker_loses_and_doubles_nothing(
    season: Season, settings: SettingsFactory, worker_process: Start
) -> None:
    """A worker is killed midway. Beliefs equal `rate`, and each event is there once, in order."""
    place = settings(shards=6, ladders=str(season.ladders), buckets=64)  # more shards than workers
    first, second = worker_process(place), worker_process(place)
    done(place, "submit", season.rounds)
    admin = Admin(place)
    changed, count = admin.topics.changed, admin.partitions()[admin.topics.changed]
    # By the ends of the topic, because reading all records at each look took longer than rating.
    wait_until(lambda: sum(admin.ends(changed, count)) > 1000, "the season is under way")
    first.kill()
    assert len(published(place)) < sum(season.results.values()), "killed in the middle"
    third = worker_process(place)
    assert "all equal, bit for bit" in done(place, "verify", "--wait", PATIENTLY)
    found = {player: _without_offset(record) for player, record in beliefs(place).items()}
    assert found == season.beliefs

    # A killed worker's open transaction hides later events until Kafka gives it up.
    wait_until(Finished(place), "every event can be read")
    results: Counter[tuple[str, str, str]] = Counter()
    rounds_of: dict[Player, list[int]] = {}
    for event in published(place):
        results[event.ladder, event.round_id, event.player] += 1
        rounds_of.setdefault((event.ladder, event.player), []).append(event.rounds)
    assert results == season.results
    assert all(played == list(range(1, len(played) + 1)) for played in rounds_of.values())
    assert second.running and third.running
