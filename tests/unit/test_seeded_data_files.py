"""Commands on a data file with seeds and resets."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests import edited_by_hand
from tests.builders.commands import done, execute, failed, submitted
from tests.builders.lines import Line, a_correction, a_round, a_seed
from tests.builders.rated_data_files import merged, rate
from tests.rounds import day

LADDERS = """
[ladders.l]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80.0 }
"""


OLD: dict[str, Any] = {"rounds": 9, "source": "the old system"}
LOG = [
    a_seed(0, "ann", "bob", "zed", **OLD), a_round(1, "ann", "bob"),
    a_seed(2, "bob", "cy", mu=1300.0, **OLD), a_round(3, "cy", "ann"),
    a_correction("player-reset", round_id="x4", at=day(4), player="bob", sigma=300.0),
    a_seed(5, "late", **OLD),
]  # fmt: skip


@pytest.fixture
def ladders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ladders.toml"
    path.write_text(LADDERS)
    monkeypatch.setenv("STREAM_RATER_LADDERS", str(path))
    return path


@pytest.fixture
def path(tmp_path: Path, ladders: Path) -> Path:
    """A data file with seeds, resets and rounds, all of which are rated."""
    path = tmp_path / "ratings.db"
    rate(path, ladders)
    submitted(path, LOG)
    rate(path, ladders)
    return path


def test_verify_says_how_many_seeds_there_are(path: Path) -> None:
    """And finds one that was lost, or applied twice."""
    assert done("verify", "--data", path) == (
        "2 rounds replayed, 4 seeds applied, 0 rejected, 5 beliefs compared: all equal, bit for "
        "bit\n"
    )
    merged(path)
    ((zed,),) = execute(path, "SELECT record FROM beliefs WHERE player = 'zed'")
    execute(path, "UPDATE beliefs SET record = ? WHERE player = 'ann'", zed)
    assert "0 missing, 1 different, 0 that" in failed("verify", "--data", path)
    execute(path, "DELETE FROM beliefs WHERE player = 'zed'")
    assert "1 missing, 1 different, 0 that" in failed("verify", "--data", path)
    done("rebuild", "--data", path, "--replace")
    assert "all equal" in done("verify", "--data", path)


def test_a_seed_is_voided(path: Path, ladders: Path) -> None:
    """A dry run shows who moves; afterwards nothing of the seed is left, also after a rebuild."""
    shown = done("correct", "void", "l", "s0", "--dry-run", "--data", path, "--format", "json")
    moves = {each["player"]: each for each in map(json.loads, shown.splitlines())}
    assert set(moves) == {"ann", "bob", "cy", "zed"} and moves["zed"]["rating_after"] is None
    done("correct", "void", "l", "s0", "--data", path)
    rate(path, ladders)
    assert "all equal" in done("verify", "--data", path)
    lines = done("watch", "--data", path, "--from-start", "--player", "zed", "--count", "2")
    assert [line.split()[3] for line in lines.splitlines()] == ["seed", "correction"]
    done("rebuild", "--data", path, "--replace")
    assert "all equal" in done("verify", "--data", path)


def test_inspect_shows_who_was_seeded(path: Path) -> None:
    """By the last change, and in the list of changes."""
    zed, bob, ann = (
        done("inspect", "--ladder", "l", "--player", each, "--data", path)
        for each in ("zed", "bob", "ann")
    )
    assert "after 9 rounds" in zed
    assert "given by a seed, at offset 0 of its partition; it counts from 2026-01-01" in zed
    assert "seed " in zed and "players-seeded s0" in zed
    assert "changed last by player-reset, at offset 4" in bob and "reset " in bob
    assert "before the last one" in ann and "players-seeded s0" in ann


@pytest.mark.parametrize("player", ["zed", "bob", "ann"])
def test_a_seeded_player_is_erased(path: Path, player: str) -> None:
    """From the records, and so from the file; the beliefs are equal to those before."""
    merged(path)
    before = dict(execute(path, "SELECT player, record FROM beliefs"))
    output = done("erase", player, "--data", path, "--pseudonym", "someone")
    assert "all equal to those before, bit for bit" in output
    seeds = {"zed": "0 rounds, 1 seed", "bob": "1 round, 3 seeds", "ann": "2 rounds, 1 seed"}
    assert f"{seeds[player]} and 0 corrections name the player" in output
    for each in path.parent.iterdir():
        if each.name.startswith("ratings.db"):
            assert f'"{player}"'.encode() not in each.read_bytes(), each
    merged(path)
    after = dict(execute(path, "SELECT player, record FROM beliefs"))
    assert after == {"someone" if who == player else who: each for who, each in before.items()}
    assert "all equal" in done("verify", "--data", path)


@pytest.mark.parametrize("seed", range(len(edited_by_hand.SYSTEMS)))
def test_random_logs_end_as_they_should(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rounds, seeds, resets and corrections of all kinds, rated as they come: the file is equal
    to a replay, to a rebuild, and to itself after an erasure."""
    rng, path, ladders = random.Random(seed), tmp_path / "random.db", tmp_path / "ladders.json"
    rating, other = edited_by_hand.SYSTEMS[seed % len(edited_by_hand.SYSTEMS)]
    changes = [{"from_offset": 30, "rating": other}]
    ladders.write_text(json.dumps({"ladders": {"l": {"rating": rating, "changes": changes}}}))
    monkeypatch.setenv("STREAM_RATER_LADDERS", str(ladders))
    log = edited_by_hand.a_log(rng, 60, seeds=True)
    rate(path, ladders)
    for first in range(0, len(log), 15):
        submitted(path, log[first : first + 15])
        rate(path, ladders)
    assert "all equal" in done("verify", "--data", path)
    done("rebuild", "--data", path, "--replace")
    assert "all equal" in done("verify", "--data", path)
    submitted(path, [_after(each, number) for number, each in enumerate(log[:20])])
    rate(path, ladders)
    assert "all equal" in done("verify", "--data", path)
    if not _waits(path):
        assert "all equal" in done("erase", "a", "--data", path, "--pseudonym", "aa")


def _after(line: Line, number: int) -> Line:
    """The line again, with an id of its own."""
    return {**line, "round_id": f"again{number}"} if "event_type" not in line else line


def _waits(path: Path) -> bool:
    return "corrections that wait for corrections-applied: none" not in done(
        "inspect", "--ladder", "l", "--data", path
    )
