"""A command compares its ladders file with the workers' one, and reports a disagreement."""

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from stream_rater.adapters.kafka import ladder_events
from stream_rater.adapters.kafka.ladder_events import disagreement
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.cli import app
from stream_rater.config.ladders import ANY_LADDER, TEMPLATE, Change, Ladder, Ladders
from stream_rater.config.settings import Settings
from stream_rater.operations import inspect, rebuild, verify
from stream_rater.pipeline.ladder_history import LadderLog, encode_histories
from stream_rater.rating import record as belief_record
from stream_rater.rating.parameters import EloMMR
from stream_rater.runtime import malloc, selfcheck
from tests.builders.cases import cases

OURS = Ladder(rating=EloMMR(weight_limit=0.1, sigma_limit=60.0))
NEWER = EloMMR(weight_limit=0.2, sigma_limit=70.0)
FILE = Ladders(ladders={"blitz": OURS, TEMPLATE: ANY_LADDER.ladders[TEMPLATE]})
"""The workers'."""
NOT_SET = (
    "ladder 'blitz': the default parameters (STREAM_RATER_LADDERS is not set) and the notes on "
    "Kafka differ from offset 0 on: set STREAM_RATER_LADDERS to the ladders file of the workers"
)


def recorded(ladders: Ladders, *names: str) -> LadderLog:
    """The histories that workers with this file recorded of the ladders that they rated."""
    found = LadderLog()
    for message in encode_histories("noted", {name: ladders.history(name) for name in names}):
        found.read(message)
    return found


def test_the_workers_file_agrees() -> None:
    """So do the defaults on ladders that the workers rate by them, and a file with a change to
    come."""
    log = recorded(FILE, "blitz", "chess")
    assert disagreement(Settings(ladders="l.toml"), FILE, log) == ""
    assert disagreement(Settings(), ANY_LADDER, recorded(FILE, "chess")) == ""
    assert disagreement(Settings(), ANY_LADDER, log, only="chess") == ""
    coming = Ladder(rating=OURS.rating, changes=(Change(from_offset=9, rating=NEWER),))
    assert (
        disagreement(Settings(), Ladders(ladders={"blitz": coming}), recorded(FILE, "blitz")) == ""
    )


def test_another_file_does_not() -> None:
    """The text names the file, the first offset that differs, and the number of ladders."""
    assert disagreement(Settings(), ANY_LADDER, recorded(FILE, "chess", "blitz")) == NOT_SET
    changed = Ladder(rating=OURS.rating, changes=(Change(from_offset=9, rating=NEWER),))
    newer = Ladders(ladders={"blitz": changed})
    why = disagreement(Settings(ladders="old.toml"), FILE, recorded(newer, "blitz"))
    assert "the ladders file old.toml and the notes on Kafka differ from offset 9 on" in why
    gone = Ladders(ladders={"other": OURS})
    for count, expected in (
        (1, "'blitz': the"),
        (2, "'blitz' (and 1 other):"),
        (3, "(and 2 others):"),
    ):
        log = recorded(FILE, *("blitz", "chess", "go")[:count])
        assert expected in disagreement(Settings(ladders="l.toml"), gone, log)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers on which `blitz` was rated by the workers' file; a replay or a write would fail."""
    admin: Any = SimpleNamespace(
        topics=Topics.of(Settings()),
        partitions_of=lambda *names: (1,) * len(names),
        all_ends=lambda _: [0],
        create_topics=lambda: None,
        check_topics=dict,
        members=lambda _: 0,
    )
    layout = SimpleNamespace(
        begun_by=lambda kernel: kernel,
        check_rebuildable=lambda _: None,
        is_empty=lambda: True,
        check_window=lambda _: None,
    )
    record = SimpleNamespace(records=[b""])
    store = SimpleNamespace(layout=layout, prepare=lambda: None, read=lambda _: {0: record})
    log = SimpleNamespace(read=lambda: recorded(FILE, "blitz"), close=lambda: None)
    for module in (verify, inspect, rebuild):
        monkeypatch.setattr(module, "Admin", lambda _: admin)
        monkeypatch.setattr(module, "RedisStore", lambda _: store)
    monkeypatch.setattr(ladder_events, "LadderEvents", lambda *_: log)
    monkeypatch.setattr(selfcheck, "check", lambda: None)
    monkeypatch.setattr(malloc, "configure", lambda: None)
    monkeypatch.setattr(rebuild, "layout_of", lambda *_: {})


@cases(
    ("words", "expected"),
    [
        (["verify"], f"stream-rater: {NOT_SET}: nothing was compared\n"),
        (
            ["rebuild"],
            f"stream-rater: {NOT_SET}, or give --replace to rate all rounds again by other "
            "parameters\n",
        ),
    ],
)
def test_a_command_without_the_file_refuses(servers: None, words: list[str], expected: str) -> None:
    """Before it has compared or written anything."""
    result = CliRunner().invoke(app.main, words)
    assert (result.exit_code, result.stderr) == (2, expected)


def test_inspect_warns_and_shows_no_rating(servers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The belief itself is shown, because it depends on no file."""
    header = {"mu": 1500.0, "sigma": 80.0, "rounds": 1, "last": 0}
    beliefs = SimpleNamespace(header=[header])
    monkeypatch.setattr(belief_record, "decode", lambda *_: beliefs)
    monkeypatch.setattr(inspect, "factors_of", lambda _: [None])
    monkeypatch.setattr(inspect, "belief_lines", lambda *_: iter(["believed"]))
    monkeypatch.setattr(inspect, "read_back", lambda *_, **__: ([], None))
    lines = inspect._player(Settings(), "blitz", "ida")
    assert [next(lines), next(lines)] == ["ida on blitz", "believed"]
