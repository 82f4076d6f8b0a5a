"""Rolling upgrades to other parameters and kernels, while rounds and corrections arrive."""

from pathlib import Path

import msgspec
import pytest

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.settings import Settings
from stream_rater.contract.events import rating_changed_from_json
from tests.chaos.season import differing
from tests.integration import processes, test_corrections
from tests.integration.processes import LAST_RELEASE, NEXT_RELEASE, Start, done, refused, stopped
from tests.integration.test_corrections import RANKED, correct, corrections, season
from tests.integration.test_service import a_round, assert_all_rated_once, events_of
from tests.integration.topics import produce, published, rated, read_topic
from tests.real import SettingsFactory
from tests.waits import wait_until

LADDER = """
[ladders.ranked]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }
"""

CHANGE = """
[[ladders.ranked.changes]]
from_offset = {}
rating = {{ system = "elo-mmr", weight_limit = 0.4, sigma_limit = 120, display = "mu" }}
"""


def with_file(settings: Settings, path: Path, text: str) -> Settings:
    path.write_text(text)
    return msgspec.structs.replace(settings, ladders=str(path))


@pytest.fixture
def before(settings: SettingsFactory, tmp_path: Path) -> Settings:
    return with_file(settings(partitions=1), tmp_path / "before.toml", LADDER)


def traced(number: int) -> tuple[str, bytes]:
    return ("traceparent", f"00-{number + 1:032x}-{number + 1:016x}-01".encode())


def send(settings: Settings, first: int, count: int) -> None:
    numbers = range(first, first + count)
    produce(settings, [a_round(n, "ranked")._replace(headers=[traced(n)]) for n in numbers])


def rounds_with_traces(settings: Settings) -> set[int]:
    """The rounds that have events. Fails if an event does not carry its round's trace."""
    found = set()
    for message in read_topic(settings, Topics.of(settings).changed):
        number = int(rating_changed_from_json(message.value() or b"").round_id[1:])
        assert traced(number) in (message.headers() or ())
        found.add(number)
    return found


def test_a_change_at_an_offset(before: Settings, worker_process: Start, tmp_path: Path) -> None:
    """From the offset on, new workers rate by the new parameters. A worker with the old file waits
    there, and cannot start again. Once it is gone, the others rate all."""
    forgotten = worker_process(before, "estimator")
    updater = worker_process(before, "updater")
    send(before, 0, 40)
    rated(before)
    after = with_file(before, tmp_path / "after.toml", LADDER + CHANGE.format(60))
    updater.terminate()
    worker_process(after, "updater")
    worker_process(after, "estimator")  # its start records the change; it gets no partition yet
    send(before, 40, 40)
    wait_until(lambda: "ladder 'ranked'" in forgotten.get("/readyz")[1], "it refuses the ladder")
    assert forgotten.metric("stream_rater_refused_ladders") == 1
    assert forgotten.get("/healthz")[0] == 200
    assert "from offset 60 on" in refused(before, "run", code=2)
    late = with_file(before, tmp_path / "late.toml", LADDER + CHANGE.format(60) + CHANGE.format(70))
    assert "too late, because its partition of round-completed already ends at 80" in refused(
        late, "run", code=2
    )

    forgotten.terminate()
    rated(after)
    assert_all_rated_once(after, 80)
    shown = {int(event.round_id[1:]): event.rating == event.mu for event in published(after)}
    assert [number for number, by_mu in sorted(shown.items()) if by_mu] == list(range(60, 80))


def test_kernels_of_the_next_version(before: Settings, worker_process: Start) -> None:
    """Workers of both releases run, and later only newer ones. Each event is there once, with its
    trace. A rebuild makes all ratings the newer kernels'."""
    old = worker_process(before, module=LAST_RELEASE)
    send(before, 0, 100)
    wait_until(lambda: len(events_of(before)) > 50, "it is under way")
    new = worker_process(before, ready=False, module=NEXT_RELEASE)
    wait_until(new.has_a_share, "it has a share")
    send(before, 100, 100)
    old.terminate()
    send(before, 200, 100)
    rated(before)
    found = events_of(before)
    assert len(found) == 600
    assert set(found.values()) == {1}

    send(before, 300, 10)
    rated(before)
    assert rounds_with_traces(before) == {*range(310)}

    ended = processes.stream_rater("verify", settings=before, module=NEXT_RELEASE)
    assert ended.returncode == 1
    assert "0 missing" in ended.stderr
    older, newer = KERNEL_VERSION, KERNEL_VERSION + 1
    assert f"go back to kernel version {older}, this release has {newer}" in ended.stderr
    stopped(new)
    done(before, "rebuild", "--replace", module=NEXT_RELEASE)
    done(before, "verify", module=NEXT_RELEASE)


@pytest.mark.slow
def test_corrections_of_two_kernels(settings: SettingsFactory, worker_process: Start) -> None:
    """Estimators of both releases replay corrections, with checkpoints of their own, and a newer
    updater applies them. Each event begins where the last one ended, and Redis has the published
    values. Then the operator goes back: the older rebuild reads what the newer one applied."""
    at = settings(partitions=1, correction_threshold=0.0, checkpoint_every=5)
    older = worker_process(at, "estimator")
    newer = [worker_process(at, "updater", module=NEXT_RELEASE)]
    rated(at, *season(0, 60))
    assert corrections(at, correct(at, "void", RANKED, "r41"))

    older.terminate()
    older.wait()
    newer.append(worker_process(at, "estimator", ready=False, module=NEXT_RELEASE))
    assert corrections(at, correct(at, "void", RANKED, "r43"))
    assert corrections(at, correct(at, "void", RANKED, "r45"))
    rated(at, *season(60, 20))
    last = {who: events[-1] for who, events in test_corrections.published_events(at).items()}
    assert [*differing(last, at)] == []

    for worker in newer:
        worker.terminate()
        worker.wait()
    wait_until(processes.gone(at), "all have left")
    done(at, "rebuild", "--replace")
    worker_process(at)
    assert corrections(at, correct(at, "void", RANKED, "r47"))
    rated(at, *season(80, 20))
    test_corrections.verified(at)
