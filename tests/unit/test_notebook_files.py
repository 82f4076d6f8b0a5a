"""`Ladder.rate_file`: what `stream-rater rate` makes of a file, beside rounds that are given."""

import base64
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream_rater import Ladder, OtherLadder, RefusedLine
from stream_rater.cli import app
from stream_rater.library import rater
from stream_rater.rating.elo_mmr import rate_waves as waves_kernel
from stream_rater.replay.edited_log import BATCH_BYTES
from tests.builders.cases import cases
from tests.builders.lines import a_correction, a_round

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write lines, objects as JSON, into a file of this name."""

    def written(name: str, lines: Sequence[Any]) -> Path:
        texts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines]
        text = b"".join(each + b"\n" for each in texts)
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
        return tmp_path / name

    return written


def duels(count: int, first: int = 0, ladder: str = "duel") -> list[dict[str, Any]]:
    """Among six players."""
    return [
        a_round(i, f"p{i % 6}", f"p{(i + 1 + i % 4) % 6}", ladder=ladder)
        for i in range(first, first + count)
    ]


def state(ladder: Ladder) -> list[Any]:
    """All that is to be seen of a ladder."""
    return [ladder.name, ladder.players.to_dicts(), [ladder.record(each) for each in ladder]]


def rated(path: Path) -> list[Any]:
    """What `stream-rater rate` prints about a file's players."""
    found = CliRunner().invoke(app.main, ["rate", str(path), "--records"])
    return [json.loads(line) for line in found.stdout.splitlines()]


NUMBERS = "player", "mu", "sigma", "rating", "rounds"


def ratings_of(ladder: Ladder) -> list[Any]:
    """The same of a ladder."""
    return [
        {"ladder": ladder.name, **{name: row[name] for name in NUMBERS},
         "record": base64.b64encode(ladder.record(row["player"])).decode()}
        for row in ladder.leaderboard().to_dicts()
    ]  # fmt: skip


def rate_one(ladder: Ladder, line: dict[str, Any]) -> None:
    """Give a round of players alone, as it stands in a file."""
    names, ranks = zip(*((each["player"], each["rank"]) for each in line["standings"]), strict=True)
    ladder.rate(names, ranks, completed_at=line["completed_at"], round_id=line["round_id"])


@cases("name", ["rounds.jsonl", "rounds.jsonl.gz"])
def test_a_file_is_rated_as_by_the_command(write: Write, name: str) -> None:
    """Each number and each record is the same. What is no round is reported with its line."""
    light = {**a_round(99, "ann", "bob", ladder="duel"), "weight": 0}
    lines = [*duels(40), b"", b"junk", light, a_round(41, "a", "b", ladder="duel")]
    ladder = Ladder()
    found = ladder.rate_file(write(name, lines))
    assert (found.rounds, found.updates, found.ladder) == (41, 82, "duel")
    assert (found.refused, found.other_rounds, found.corrections) == (2, 0, 0)
    bad, weightless = found.refusals
    assert (bad.line, bad.code) == (42, "malformed")
    assert weightless == RefusedLine(43, "bad-weight", "weight: 0.0 is not in (0, 1000]")
    assert ratings_of(ladder) == rated(write(name, lines)) and len(ladder) == 8


def test_rounds_before_and_after_a_file(write: Write) -> None:
    """All of them are one log, whoever gives which part; the file gives the ladder its name."""
    lines = duels(60)
    ladder = Ladder()
    for each in lines[:5]:
        rate_one(ladder, each)
    assert ladder.name == "notebook"
    ladder.rate_file(str(write("some.jsonl", lines[5:30])))
    assert ladder.name == "duel"
    rate_one(ladder, lines[30])
    ladder.rate_file(write("more.jsonl", lines[31:59]))
    rate_one(ladder, lines[59])
    assert ratings_of(ladder) == rated(write("all.jsonl", lines))


def test_ids_count_in_all_of_them(write: Write) -> None:
    """A round that was given is refused in a file, and the other way round."""
    lines = duels(5)
    ladder = Ladder()
    rate_one(ladder, lines[2])
    found = ladder.rate_file(write("all.jsonl", lines))
    assert found.rounds == 4
    assert found.refusals == (
        RefusedLine(3, "duplicate-round", "round_id 'r2' stands at offset 0"),
    )
    with pytest.raises(ValueError, match="'r3' stands at offset 4"):
        rate_one(ladder, lines[3])


# --- ladders -------------------------------------------------------------------------------------


def test_a_file_of_several_ladders_needs_a_choice(write: Write) -> None:
    """The first round of another one is named, and nothing was changed."""
    lines = [*duels(3), a_round(9, "x", "y", ladder="arena"), *duels(3, first=10)]
    path, ladder = write("mixed.jsonl", lines), Ladder()
    with pytest.raises(OtherLadder) as refused:
        ladder.rate_file(path)
    assert str(refused.value) == (
        f"{path}:4: a round of ladder 'arena' among those of 'duel': say which to rate, as "
        "ladder='duel'"
    )
    assert (len(ladder), ladder.name) == (0, "notebook")
    found = ladder.rate_file(path, ladder="duel")
    assert (found.rounds, found.other_rounds, found.updates) == (6, 1, 12)
    assert ratings_of(ladder) == [each for each in rated(path) if each["ladder"] == "duel"]
    arena = Ladder()
    arena.rate_file(path, ladder="arena")
    assert ratings_of(arena) == [each for each in rated(path) if each["ladder"] == "arena"]


def test_a_ladder_stays_one(write: Write) -> None:
    """Once a file has named it, no file of another one is rated."""
    ladder = Ladder()
    ladder.rate_file(write("duel.jsonl", duels(3)))
    before, arena = state(ladder), write("arena.jsonl", duels(3, ladder="arena"))
    with pytest.raises(OtherLadder, match=r"arena.jsonl:1: a round of ladder 'arena'"):
        ladder.rate_file(arena)
    with pytest.raises(OtherLadder, match="ladder 'arena', but this one is 'duel': make another"):
        ladder.rate_file(arena, ladder="arena")
    assert state(ladder) == before
    assert ladder.rate_file(write("junk.jsonl", [{"a": 1}])).rounds == 0
    assert state(ladder) == before


# --- corrections ---------------------------------------------------------------------------------

VOIDED = a_correction("round-voided", ladder="duel", round_id="r7")
REMOVED = a_correction("player-removed", ladder="duel", player="p3")
MERGED = a_correction("player-merged", ladder="duel", player="p0", into="new")
SEASON = a_correction("season-started", ladder="duel", season=1, keep=0.5, sigma=200)
UNKNOWN = a_correction("round-voided", ladder="duel", round_id="nobody's")
NEW = a_round(40, "new", "p9", ladder="duel")


def test_a_file_is_rated_as_its_corrections_make_it(write: Write) -> None:
    """The players are as by the command. A rejected correction is reported with its line."""
    lines = [*duels(12), SEASON, *duels(6, first=12), VOIDED, UNKNOWN, REMOVED, *duels(6, first=18)]
    ladder, path = Ladder(), write("all.jsonl", lines)
    found = ladder.rate_file(path)
    assert (found.rounds, found.corrections, found.refused) == (24, 3, 1)
    assert found.refusals == (
        RefusedLine(21, "unknown-round", 'round_id "nobody\'s" is not on this ladder'),
    )
    assert ratings_of(ladder) == rated(path) and "p3" not in ladder


@cases("correction", [VOIDED, REMOVED, MERGED, SEASON])
def test_a_correction_reaches_back(write: Write, correction: dict[str, Any]) -> None:
    """It edits earlier rounds and files, and it counts for what is given later."""
    lines = [*duels(15), NEW, correction, *duels(6, first=20)]
    ladder = Ladder()
    for each in lines[:6]:
        rate_one(ladder, each)
    ladder.rate_file(write("some.jsonl", lines[6:16]))
    found = ladder.rate_file(write("corrections.jsonl", lines[16:20]))
    assert (found.rounds, found.corrections, found.refused) == (3, 1, 0)
    ladder.rate_file(write("more.jsonl.gz", lines[20:21]))
    for each in lines[21:]:
        rate_one(ladder, each)
    assert ratings_of(ladder) == rated(write("all.jsonl", lines))


def test_merged_and_removed_players_play_on(write: Write) -> None:
    """A merged player's row has the id and the side it counts for. A removed player has no row."""
    ladder = Ladder()
    ladder.rate_file(write("a.jsonl", [*duels(12), NEW, REMOVED, MERGED]))
    found = ladder.rate(["p4", ("p3", "p1"), "p0"], [3, 1, 2])
    assert found.player.tolist() == ["p4", "p1", "new"] and found.side.tolist() == [0, 1, 2]
    assert found.rank.tolist() == [3, 1, 2]
    assert len(ladder.rate(["p3", "p1"])) == 0


def test_a_season_is_seen(write: Write) -> None:
    """Beliefs show it before the next round."""
    ladder = Ladder()
    ladder.rate_file(write("a.jsonl", duels(12)))
    before = ladder["p1"]
    ladder.rate_file(write("b.jsonl", [SEASON]))
    after = ladder["p1"]
    assert after.mu == pytest.approx(0.5 * (1500.0 + before.mu), abs=1.0) and after.sigma == 200.0
    assert ladder.players.to_dicts()[1]["mu"] == after.mu
    assert ladder.get("nobody") == Ladder().get("nobody")


# --- failures ------------------------------------------------------------------------------------


def test_a_file_that_ends_too_early_changes_nothing(write: Write) -> None:
    """However much of it was rated, on a ladder with rounds and on one without."""
    ladder = Ladder()
    ladder.rate_file(write("good.jsonl", duels(10)))
    before, same = state(ladder), write("more.jsonl", duels(50, first=10))
    lines = duels(4000, first=1000)
    cut = write("cut.jsonl.gz", lines)
    assert sum(len(json.dumps(each)) for each in lines) > 2 * BATCH_BYTES
    cut.write_bytes(cut.read_bytes()[:-9])
    for each in (ladder, Ladder()):
        with pytest.raises(OSError, match=r"cut.jsonl.gz: the compressed file is cut off"):
            each.rate_file(cut)
    assert state(ladder) == before
    ladder.rate_file(same)
    assert ratings_of(ladder) == rated(write("all.jsonl", duels(60)))


def test_a_file_that_is_broken_off_is_undone(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes in the middle of the file: what was rated before is rated again."""
    ladder, path = Ladder(), write("long.jsonl", duels(4000, first=10))
    ladder.rate_file(write("a.jsonl", duels(10)))
    before, rate_waves, calls = state(ladder), waves_kernel.rate_waves, []

    def interrupted(*given: Any) -> None:
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        rate_waves(*given)

    with monkeypatch.context() as patch:
        patch.setattr("stream_rater.rating.stages.kernels.rate_waves", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ladder.rate_file(path)
    assert state(ladder) == before
    assert ladder.rate_file(path).rounds == 4000


@cases("text", [b"player,rank", b"[{}]"])
def test_other_files_are_named(write: Write, text: bytes) -> None:
    """In one line; and one that is not there."""
    with pytest.raises(OSError, match=r"other.txt: no JSON lines"):
        Ladder().rate_file(write("other.txt", [text]))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Ladder().rate_file("nowhere.jsonl")


def test_a_file_must_be_what_it_was(write: Write) -> None:
    """If a correction makes the ladder read it again: else the log would be another one."""
    ladder = Ladder()
    path = write("a.jsonl", duels(12))
    ladder.rate_file(path)
    before, correction = state(ladder), write("b.jsonl", [*duels(3, first=20), VOIDED])
    text = path.read_bytes()
    path.write_bytes(text + b"\n")
    with pytest.raises(OSError, match=r"a.jsonl: has changed since it was rated"):
        ladder.rate_file(correction)
    path.unlink()
    with pytest.raises(OtherLadder):
        ladder.rate_file(write("c.jsonl", [*duels(3, first=20), a_round(9, "x", "y", ladder="z")]))
    assert state(ladder) == before
    assert ladder.rate_file(write("d.jsonl", duels(3, first=20))).rounds == 3


def test_no_more_refusals_are_kept_than_anybody_reads(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ones; all are counted."""
    monkeypatch.setattr(rater, "MOST_REJECTED_LINES", 3)
    found = Ladder().rate_file(write("a.jsonl", [*duels(1), *({"n": i} for i in range(9))]))
    assert found.refused == 9 and [each.line for each in found.refusals] == [2, 3, 4]
