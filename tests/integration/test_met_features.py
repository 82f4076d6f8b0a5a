"""Where features meet: shards that were added, a torn log with corrections, two ladders files."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from tests import real
from tests.builders import met_features
from tests.builders.lines import Bytes, a_message, a_round
from tests.builders.met_features import PLAYERS, Start, all_equal, done, rated
from tests.integration.erasing import stopped
from tests.integration.processes import variables_of
from tests.integration.topics import produce, read_topic
from tests.waits import wait_until

broken = pytest.mark.xfail(strict=True, raises=(AssertionError, subprocess.TimeoutExpired))
"""What the next issue mends: it then passes, and so the mark must go."""


@pytest.fixture
def at(settings: real.SettingsFactory) -> Settings:
    """One ladder, in one partition."""
    return settings(partitions=1, shards=2)


def test_beliefs_and_events_agree_after_shards_were_added(
    at: Settings, worker_process: Start
) -> None:
    """Every belief equals the replay, and the event with the greatest offset has its rounds."""
    at = met_features.added_shards(at, worker_process)
    assert all_equal(at)
    played = {player: event.rounds for (_, player), event in met_features.newest_events(at).items()}
    counted = dict.fromkeys(PLAYERS, 0)
    for each in met_features.rounds(0, 80):
        for entry in msgspec.json.decode(each.value or b"")["standings"]:
            counted[entry["player"]] += 1
    assert played == counted


@broken
@pytest.mark.slow
def test_a_move_keeps_the_newest_events(
    at: Settings, settings: real.SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """Also where a player's events are in two partitions."""
    at = met_features.added_shards(at, worker_process, corrected=True)
    before, to = met_features.newest_events(at), settings(partitions=1, shards=2)
    source = tmp_path / "old.toml"
    given = variables_of(at).items()
    lines = [f"{name.removeprefix('STREAM_RATER_').lower()} = {_toml(v)}\n" for name, v in given]
    source.write_text("".join(lines))
    done(to, "move", "--from", str(source))
    assert met_features.newest_events(to) == before


def _toml(value: str) -> str:
    return value if value.isdigit() else f'"{value}"'


@pytest.mark.parametrize(
    "corrected",
    [False, pytest.param(True, marks=[broken, pytest.mark.slow])],
    ids=["rounds", "corrections"],
)
def test_rounds_that_a_log_lost_are_rated_when_they_are_reported_again(
    corrected: bool, at: Settings, worker_process: Start
) -> None:
    """After one rebuild, beliefs equal the replay of what is left, and then of all."""
    lost = met_features.torn_log(at, worker_process, corrected=corrected)
    done(at, "rebuild", "--replace")
    assert all_equal(at), "after the rebuild"
    worker = worker_process(at)
    rated(at, lost)
    assert all_equal(at), "after the rounds were reported again"
    stopped(worker)


def after_the_roll_out(
    at: Settings, start: Start, folder: Path, record: Bytes
) -> tuple[bool, Settings]:
    """Whether the old worker leaves a record of the time after the change alone, and the settings
    of the new one, which has rated all."""
    files, worker = met_features.two_files(at, start, folder)
    produce(at, [record])
    rejected = Topics.of(at).rejected

    def decided() -> bool:
        waits = worker.metric("stream_rater_refused_ladders") == 1
        return waits or bool(read_topic(at, rejected))

    wait_until(decided, "the old worker has come to it")
    left_alone = not read_topic(at, rejected)
    stopped(worker)
    start(files.new)
    rated(files.new, [])
    return left_alone and not read_topic(at, rejected), files.new


@pytest.mark.parametrize(
    "entries",
    [4, pytest.param(6, marks=[broken, pytest.mark.slow])],
    ids=["of-both-files", "of-the-new-file"],
)
def test_a_worker_with_the_old_ladders_file_waits(
    entries: int, at: Settings, worker_process: Start, tmp_path: Path
) -> None:
    """From the offset of the change on it rejects nothing, whichever file accepts it."""
    record = a_message(a_round(100, *PLAYERS[:entries]))._replace(partition=0)
    left_alone, new = after_the_roll_out(at, worker_process, tmp_path, record)
    assert left_alone and all_equal(new)
