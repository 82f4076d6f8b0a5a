"""`verify` says what it waits for, and fails at once where waiting is of no use."""

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_rater.adapters.topics import Topics
from stream_rater.cli import app, commands
from stream_rater.config import Settings
from stream_rater.pipeline.ports import StoreTrouble


def admin(behind: list[int]) -> Any:
    """One whose workers are so far behind, each time that they are asked for."""
    asked = iter(behind)
    return SimpleNamespace(
        topics=Topics.of(Settings()),
        partitions_of=lambda *_: (1, 1),
        behind=lambda *_: next(asked),
    )


def run(*words: str) -> Result:
    return CliRunner().invoke(app.main, ["verify", *words])


def test_a_redis_that_is_down_is_told_before_any_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that cannot reach it never catch up."""

    def down(_: int) -> int:
        raise StoreTrouble("redis: connection refused")

    store = SimpleNamespace(layout=SimpleNamespace(begun_by=down))
    monkeypatch.setattr(commands, "RedisStore", lambda _: store)
    monkeypatch.setattr(commands, "Admin", lambda _: admin([]))
    result = run("--wait", "60")
    assert result.exit_code == 1
    assert result.stderr == "stream-rater: redis: connection refused\n"


def test_what_is_waited_for_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With how long; nothing where nobody is behind."""
    monkeypatch.setattr(commands.time, "sleep", lambda _: None)
    commands._wait_until_caught_up(admin([0, 0]), 1, 1, 60.0)
    assert capsys.readouterr().err == ""
    commands._wait_until_caught_up(admin([3, 4, 1, 0, 0, 0]), 1, 1, 60.0)
    assert capsys.readouterr().err == (
        "waiting for the workers, which are 7 records behind, for 60 s at most\n"
    )
