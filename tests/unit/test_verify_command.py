"""`verify` says what it waits for, and fails at once where waiting is of no use."""

import time
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.metadata import StoreMetadata
from stream_rater.cli import app
from stream_rater.config.errors import Failed
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import StoreTrouble
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from stream_rater.operations import verify
from stream_rater.operations.compare_store import Verdict
from tests.builders.cases import cases

RUNNING = {ESTIMATORS: 1, UPDATERS: 1}
"""The members of each group."""


def admin(behind: list[int], members: Mapping[str, int] = RUNNING) -> Any:
    """One whose workers are so far behind, each time that they are asked for."""
    asked = iter(behind)
    return SimpleNamespace(
        topics=Topics.of(Settings()),
        partitions_of=lambda *_: (1, 1),
        ends=lambda *_: [0],
        left=lambda *_: {0: range(next(asked))},
        members=lambda group: members[group],
    )


@pytest.fixture(autouse=True)
def without_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are not looked for where offsets are left."""

    def unfinished(_: Settings, admin: Any) -> Any:
        return SimpleNamespace(look=admin.left)

    monkeypatch.setattr(verify, "UnfinishedRounds", unfinished)


def run(*words: str) -> Result:
    return CliRunner().invoke(app.main, ["verify", *words])


def test_a_redis_that_is_down_is_reported_before_any_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers that cannot reach it never catch up."""

    def down(_: int) -> int:
        raise StoreTrouble("redis: connection refused")

    store = SimpleNamespace(layout=SimpleNamespace(begun_by=down))
    monkeypatch.setattr(verify, "RedisStore", lambda _: store)
    monkeypatch.setattr(verify, "Admin", lambda _: admin([]))
    result = run("--wait", "60")
    assert result.exit_code == 1
    assert result.stderr == "stream-rater: redis: connection refused\n"


def test_another_duplicate_window_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would find other rounds to be duplicates, and differences that are none. Their cure would
    be a rebuild, which spoils what is right."""
    stored = {"kernel": b"11", "duplicate_window": b"7"}
    client: Any = SimpleNamespace(hget=lambda _, field: stored.get(field))
    store = SimpleNamespace(layout=StoreMetadata(client, lambda call: call()))
    monkeypatch.setattr(verify, "RedisStore", lambda _: store)
    monkeypatch.setattr(verify, "Admin", lambda _: admin([]))
    monkeypatch.setattr(verify, "read_ladder_events", lambda *_: pytest.fail("it went on"))
    result = run()
    assert result.exit_code == 2
    assert result.stderr == (
        "stream-rater: the workers have duplicate_window = 7, here it is 100000: set what the "
        "workers have: nothing was compared\n"
    )


def test_what_is_waited_for_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With how long; nothing where nobody is behind."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    verify._wait_until_caught_up(Settings(), admin([0, 0]), 1, 1, 60.0)
    assert capsys.readouterr().err == ""
    verify._wait_until_caught_up(Settings(), admin([3, 4, 1, 0, 0, 0]), 1, 1, 60.0)
    assert capsys.readouterr().err == (
        "waiting for the workers, which are 7 records behind, for 60 s at most\n"
    )


def test_parts_are_looked_for_after_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round is finished while it looks. Its part is sent by then, and is not applied."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    sent, applied = 0, 0

    def left(group: str, _: str, ends: Mapping[int, int]) -> dict[int, range]:
        return {0: range(applied, ends[0])}

    def look(_: Mapping[int, int]) -> dict[int, range]:
        nonlocal sent, applied
        sent, applied = 1, sent  # the part of the last look is applied by now
        return {}

    parts = Topics.of(Settings()).parts
    place: Any = SimpleNamespace(
        topics=Topics.of(Settings()), members=lambda _: 1, left=left,
        ends=lambda topic, _: [sent if topic == parts else 1],
    )  # fmt: skip
    monkeypatch.setattr(verify, "UnfinishedRounds", lambda *_: SimpleNamespace(look=look))
    verify._wait_until_caught_up(Settings(), place, 1, 1, 60.0)
    assert applied == 1


@cases(
    ("behind", "role"), [([6, 0], "6 records of an estimator"), ([0, 1], "1 record of an updater")]
)
def test_nobody_is_waited_for_who_does_not_run(behind: list[int], role: str) -> None:
    """It says at once which roles to start. If nothing is left to do, none need run."""
    expected = f"{role}'s work left, and no worker with this role runs: start one"
    with pytest.raises(Failed, match=expected):
        verify._wait_until_caught_up(
            Settings(), admin(behind, {ESTIMATORS: 0, UPDATERS: 0}), 1, 1, 60.0
        )
    verify._wait_until_caught_up(
        Settings(), admin([0, 0], {ESTIMATORS: 0, UPDATERS: 0}), 1, 1, 60.0
    )


def test_rejections_are_shown_by_their_codes() -> None:
    """The most frequent first: duplicates are harmless, others may not be."""
    codes = Counter({"bad-time": 1, "duplicate-round": 18})
    assert verify._report(Verdict(rounds=200, rejected=codes, beliefs=7), 0, 0) == (
        "200 rounds replayed, 19 rejected (18 duplicate-round, 1 bad-time), 7 beliefs compared: "
        "all equal, bit for bit"
    )
    assert verify._report(Verdict(rounds=1, beliefs=2), 0, 0) == (
        "1 rounds replayed, 0 rejected, 2 beliefs compared: all equal, bit for bit"
    )
