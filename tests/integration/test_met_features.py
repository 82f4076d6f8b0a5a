"""Where features meet (`builders/met_features`)."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from local.servers import Addresses
from stream_rater.config.settings import Settings
from stream_rater.contract.events import LOG_LOST
from tests import real
from tests.builders import met_features
from tests.builders.lines import LADDER, a_message, a_round
from tests.builders.serves import ServeHere
from tests.chaos.season import differing
from tests.integration import topics
from tests.integration.processes import (
    PATIENTLY,
    Start,
    done,
    file_of,
    refused,
    stopped,
    stream_rater,
)
from tests.integration.serving import ask
from tests.integration.test_corrections import verified
from tests.integration.topics import newest_events, rated
from tests.real import SettingsFactory


@pytest.fixture
def at(settings: SettingsFactory) -> Settings:
    return settings(partitions=1, shards=2)


@pytest.fixture
def another(addresses: Addresses) -> Iterator[Callable[[], Settings]]:
    with ExitStack() as stack:
        yield lambda: msgspec.structs.replace(
            stack.enter_context(real.a_place(addresses)), partitions=1, shards=2
        )


def test_beliefs_and_events_agree_after_new_shards(at: Settings, worker_process: Start) -> None:
    """Every belief equals the replay, and the event with the greatest offset has its rounds."""
    at = met_features.added_shards(at, worker_process)
    verified(at)
    played = {player: event.rounds for (_, player), event in newest_events(at).items()}
    counted = dict.fromkeys(met_features.PLAYERS, 0)
    for each in met_features.rounds(0, 80):
        for entry in msgspec.json.decode(each.value or b"")["standings"]:
            counted[entry["player"]] += 1
    assert played == counted


@pytest.mark.parametrize("corrected", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_rounds_that_a_log_lost_are_rated_when_they_are_reported_again(
    corrected: bool, at: Settings, worker_process: Start
) -> None:
    """After one rebuild, beliefs equal the replay of the rounds that are left, and later that of
    all rounds. Newest events agree with them. A second rebuild changes nothing."""
    lost = met_features.torn_log(at, worker_process, corrected=corrected, half_season=corrected)
    why = "only a part of its standings" if corrected else "lost records: partition 0 was"
    assert why in refused(at, "erase", met_features.PLAYERS[0], "--to", "new.")
    for command in ("verify", "checkpoint"):
        assert "lost records: partition 0 was finished up to" in refused(at, command, code=1)
    for _ in range(2):
        done(at, "rebuild", "--replace")
        assert topics.not_compared(at) == []
        verified(at)  # of the rounds that are left
        newest = newest_events(at)
        assert {each.correction.cause for each in newest.values() if each.correction} >= {LOG_LOST}
        assert list(differing(newest, at)) == []
    worker = worker_process(at)
    rated(at, *lost)
    verified(at)  # of all rounds
    assert list(differing(newest_events(at), at)) == []
    stopped(worker)


@pytest.mark.parametrize("entries", [4, 6])
def test_a_worker_with_the_old_ladders_file_waits(
    entries: int, at: Settings, worker_process: Start, tmp_path: Path
) -> None:
    """From the offset of the change on it rejects nothing, whichever file accepts it."""
    record = a_message(a_round(100, *met_features.PLAYERS[:entries]))._replace(partition=0)
    left_alone, new = met_features.rolled_out(at, worker_process, tmp_path, record)
    assert left_alone
    verified(new)


PLAYER = "p3"
ANSWERS = {
    "verify": (("verify", "--wait", PATIENTLY), r"\d+ rounds replayed|\d+ beliefs .* all equal"),
    "inspect": (
        ("inspect", "--ladder", LADDER, "--player", PLAYER), r"shown: .*|believed: .*| +\d+.*%$"
    ),
    "corrections": (("inspect", "--ladder", LADDER), r"applied: \w+|round_id \w+"),
    "predict": (("predict", "--ladder", LADDER, "--format", "json", "p0,p1", "p3"), ".+"),
    "correct": (("correct", "void", LADDER, "r7", "--dry-run", "--format", "json"), ".+"),
    "tune": (
        ("tune", "--from-topic", "--ladder", LADDER, "--trials", "1"),
        r"\d+ rounds to tune on and \d+|[{].+",
    ),
    "checkpoint": (("checkpoint",), r"\d+ players"),
    "seed": (
        ("seed", "--ladder", "other", "--from-ladder", LADDER, "--at", "2026-01-01T00:00:00Z",
         "--dry-run"), ".+",
    ),
    "rejected": (
        ("rejected", "--json", "--from-start", "--wait", "1"), r'"code":"(?!malformed)[\w-]+"'
    ),
    "erase": (("erase", PLAYER, "--to", "x.", "--dry-run"), r"\d+ rounds .* name the player"),
}  # fmt: skip
"""By command: its words, and the lines of its answer that log and ladders file determine."""
ON_FILE = [name for name in ANSWERS if name not in ("inspect", "corrections", "rejected")]
"""Those that nothing answers by another ladders file."""


def added(at: Settings, start: Start, _: Path) -> Settings:
    return met_features.added_shards(at, start, corrected=True)


def torn(at: Settings, start: Start, _: Path) -> Settings:
    met_features.torn_log(at, start, corrected=True)
    done(at, "rebuild", "--replace")
    return at


def two_files(at: Settings, start: Start, folder: Path) -> Settings:
    record = a_message(a_round(100, *met_features.PLAYERS[:6]))._replace(partition=0)
    _, new = met_features.rolled_out(at, start, folder, record)
    old = msgspec.structs.replace(new, ladders=str(folder / "old.toml"))
    for name in ON_FILE:
        assert f"differ from offset {met_features.CHANGED_FROM} on" in refused(
            old, *ANSWERS[name][0], code=2
        )
    return new


@pytest.mark.slow
@pytest.mark.parametrize("met", [added, torn, two_files], ids=lambda each: each.__name__)
def test_commands_answer_as_on_a_log_that_was_rated_at_once(
    met: Callable[[Settings, Start, Path], Settings], at: Settings,
    another: Callable[[], Settings], worker_process: Start, serve: ServeHere, tmp_path: Path,
) -> None:  # fmt: skip
    """So do all of ANSWERS and `serve`. Then a player is erased, and the log is moved."""
    at = met(at, worker_process, tmp_path)
    plain = met_features.rated_at_once(at, another(), worker_process)
    for name, (words, what) in ANSWERS.items():
        said, usual = (stream_rater(*words, settings=each) for each in (at, plain))
        assert said.returncode == usual.returncode, (name, said, usual)
        found, wanted = (
            re.findall(what, each.stdout + each.stderr, re.M) for each in (said, usual)
        )
        assert found == wanted, name
        assert found or name == "rejected", said
    path = f"/v1/ladders/{LADDER}/players/{PLAYER}"
    shown, usual = (ask(serve(each), path).json for each in (at, plain))
    assert {k: shown[k] for k in ("rating", "sigma", "rounds")}.items() <= usual.items()

    before = newest_events(at)
    erased = msgspec.structs.replace(at, topic_prefix=f"{at.topic_prefix}x.")
    done(at, "erase", PLAYER, "--to", erased.topic_prefix, "--pseudonym", "gone", "--delete-old")
    verified(erased)
    to = msgspec.structs.replace(another(), shards=at.shards, ladders=at.ladders)
    done(to, "move", "--from", file_of(erased, tmp_path))
    verified(to)
    after = newest_events(to)
    assert {
        (ladder, player): (each.mu, each.rounds) for (ladder, player), each in after.items()
    } == {
        (ladder, "gone" if player == PLAYER else player): (each.mu, each.rounds)
        for (ladder, player), each in before.items()
    }  # fmt: skip
