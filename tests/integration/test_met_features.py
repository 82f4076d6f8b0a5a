"""Where features meet (`builders/met_features`)."""

from pathlib import Path

import msgspec
import pytest

from stream_rater.config.settings import Settings
from stream_rater.contract.events import LOG_LOST
from tests.builders.lines import a_message, a_round
from tests.builders.met_features import PLAYERS, added_shards, rolled_out, rounds, torn_log
from tests.chaos.season import differing
from tests.integration import topics
from tests.integration.processes import Start, done, refused, stopped
from tests.integration.test_corrections import rated, verified
from tests.integration.test_move_kafka import file_of
from tests.integration.topics import newest_events
from tests.real import SettingsFactory


@pytest.fixture
def at(settings: SettingsFactory) -> Settings:
    """One ladder, in one partition."""
    return settings(partitions=1, shards=2)


def test_beliefs_and_events_agree_after_new_shards(at: Settings, worker_process: Start) -> None:
    """Every belief equals the replay, and the event with the greatest offset has its rounds."""
    at = added_shards(at, worker_process)
    verified(at)
    played = {player: event.rounds for (_, player), event in newest_events(at).items()}
    counted = dict.fromkeys(PLAYERS, 0)
    for each in rounds(0, 80):
        for entry in msgspec.json.decode(each.value or b"")["standings"]:
            counted[entry["player"]] += 1
    assert played == counted


@pytest.mark.slow
def test_a_move_keeps_the_newest_events(
    at: Settings, settings: SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """Also where a player's events are in two partitions."""
    at = added_shards(at, worker_process, corrected=True)
    before, to = newest_events(at), settings(partitions=1, shards=2)
    done(to, "move", "--from", file_of(at, tmp_path))
    assert newest_events(to) == before


@pytest.mark.parametrize("corrected", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_rounds_that_a_log_lost_are_rated_when_they_are_reported_again(
    corrected: bool, at: Settings, worker_process: Start
) -> None:
    """After one rebuild, beliefs equal the replay of what is left, and then of all. Each player's
    event with the greatest offset says what the belief says. A second rebuild changes nothing."""
    lost = torn_log(at, worker_process, corrected=corrected)
    why = "only a part of its standings" if corrected else "lost records: partition 0 was"
    assert why in refused(at, "erase", PLAYERS[0], "--to", "new.")
    for _ in range(2):
        done(at, "rebuild", "--replace")
        assert topics.not_compared(at) == []
        verified(at)  # what is left
        newest = newest_events(at)
        assert {each.correction.cause for each in newest.values() if each.correction} >= {LOG_LOST}
        assert list(differing(newest, at)) == []
    worker = worker_process(at)
    rated(at, *lost)
    verified(at)  # all
    assert list(differing(newest_events(at), at)) == []
    stopped(worker)


@pytest.mark.parametrize("entries", [4, 6])
def test_a_worker_with_the_old_ladders_file_waits(
    entries: int, at: Settings, worker_process: Start, tmp_path: Path
) -> None:
    """From the offset of the change on it rejects nothing, whichever file accepts it."""
    record = a_message(a_round(100, *PLAYERS[:entries]))._replace(partition=0)
    left_alone, new = rolled_out(at, worker_process, tmp_path, record)
    assert left_alone
    verified(new)
