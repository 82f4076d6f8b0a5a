"""The commands with `--data FILE`: they read and write a data file in place of Kafka and Redis."""

import json
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from stream_rater.adapters.sqlite import database, reading
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.operations import rebuild_store
from stream_rater.operations.rebuild_store import fill_store
from stream_rater.operations.verify import place_of
from stream_rater.rating import record
from stream_rater.replay import log_reading
from tests.builders.commands import done, execute, failed, run, submitted
from tests.builders.indexes import Index, an_event
from tests.builders.lines import Line, a_round
from tests.builders.rated_data_files import estimate, merged, rate, rating
from tests.rounds import day

LADDERS = """
[ladders.duels]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80.0 }
"""
PLAYERS = [f"p{number}" for number in range(8)]


def season(first: int = 0, count: int = 30) -> list[Line]:
    """Rounds of four on one ladder."""
    random = Random(first)
    return [
        a_round(number, *random.sample(PLAYERS, 4), ladder="duels")
        for number in range(first, first + count)
    ]


@pytest.fixture
def ladders(tmp_path: Path) -> Path:
    path = tmp_path / "ladders.toml"
    path.write_text(LADDERS)
    return path


@pytest.fixture
def path(tmp_path: Path, ladders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data file with a rated season, which has a duplicate and a round of an unknown ladder."""
    monkeypatch.setenv("STREAM_RATER_LADDERS", str(ladders))
    path = tmp_path / "ratings.db"
    rate(path, ladders)
    submit(path, [*season(), season()[3]])
    rate(path, ladders)
    return path


def submit(path: Path, lines: Sequence[Line]) -> None:
    result = submitted(path, lines)
    assert result.exit_code == 0, result.output
    assert f"rated at the next start of `stream-rater standalone {path}`" in result.stderr


def test_what_is_right_is_verified(path: Path, ladders: Path) -> None:
    """Rounds and corrections, too; and once more while a process has the file."""
    assert "30 rounds replayed, 1 rejected (1 duplicate-round), 8 beliefs compared: all equal" in (
        done("verify", "--data", path)
    )
    assert "round-completed, partition" in done("correct", "void", "duels", "r3", "--data", path)
    done("correct", "season", "duels", "1", "--keep", "0.5", "--sigma", "90", "--data", path)
    submit(path, season(30))
    with rating(path, ladders) as turn:
        turn()
        assert "60 rounds replayed" in done("verify", "--data", path)


@pytest.mark.parametrize(("how", "counts"), [
    ("UPDATE beliefs SET record = ? WHERE player = 'p1'", "0 missing, 1 different, 0 that"),
    ("DELETE FROM beliefs WHERE player = 'p1' AND ? != ''", "1 missing, 0 different, 0 that"),
    ("INSERT INTO beliefs VALUES (0, 'duels', 'nobody', ?)", "0 missing, 0 different, 1 that"),
])  # fmt: skip
@pytest.mark.parametrize("large", [False, True])
def test_a_belief_that_was_edited_by_hand_is_found(
    path: Path, how: str, counts: str, monkeypatch: pytest.MonkeyPatch, *, large: bool
) -> None:
    """It may be changed, missing or superfluous. A large file is compared in a temporary copy."""
    if large:
        monkeypatch.setattr(reading, "LARGE", 10)
    merged(path)
    assert "all equal" in done("verify", "--data", path)
    ((found,),) = execute(path, "SELECT record FROM beliefs WHERE player = 'p1'")
    beliefs = record.decode([found], 0, 0.0, 1.0)
    beliefs.header["mu"] += 1.0
    (edited,) = record.encode(beliefs)
    execute(path, how, edited)
    assert counts in failed("verify", "--data", path)
    assert not [each for each in path.parent.iterdir() if each.is_dir()]


def test_a_sample_of_the_ladders_is_verified(
    path: Path, ladders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With corrections, on several cores. Faults of other ladders are not found; it says so."""
    for no_share in ("0", "1.1", "-0.5"):
        result = run("verify", "--data", path, "--sample", no_share)
        assert result.exit_code == 2 and "--sample" in result.stderr
    ladders.write_text(LADDERS + LADDERS.replace("duels", "teams") + LADDERS.replace("duels", "x"))
    others = [{**each, "ladder": name} for name in ("teams", "x") for each in season(count=10)]
    submit(path, others)
    rate(path, ladders)
    done("correct", "void", "teams", "r3", "--data", path)
    rate(path, ladders)
    first, *_, last = sorted(["duels", "teams", "x"], key=place_of)
    share = ("--sample", place_of(first) + 1e-9)
    for log_length, cores in ((log_reading.LONG_LOG, 1), (1, 2)):
        with monkeypatch.context() as patch:
            patch.setattr(log_reading, "LONG_LOG", log_length)
            text = done("verify", "--data", path, *share, "--cores", cores)
        assert ": all equal, bit for bit. This is a sample of " in text
        assert "1 of 3 ladders, 8 of 24 players, in a log of 52 records. Nothing" in text
    merged(path)
    ((found,),) = execute(path, "SELECT record FROM beliefs WHERE ladder = ? LIMIT 1", last)
    spoil = "INSERT INTO beliefs VALUES (0, ?, 'nobody', ?)"
    execute(path, spoil, last, found)
    assert "all equal" in done("verify", "--data", path, *share)
    assert "0 missing, 0 different, 1 that" in failed("verify", "--data", path)
    execute(path, spoil, first, found)
    assert "0 missing, 0 different, 1 that" in failed("verify", "--data", path, *share)
    execute(path, "DELETE FROM beliefs WHERE ladder = ?", first)
    assert "8 missing, 0 different, 0 that" in failed("verify", "--data", path, *share)


def test_what_is_not_rated_yet_is_not_compared(path: Path, ladders: Path) -> None:
    """Without a process this fails at once, with one after a while."""
    submit(path, season(30, 5))
    expected = f"{path}: 5 records not rated yet: let `stream-rater standalone {path}` rate them"
    assert failed("verify", "--data", path).startswith(expected)
    with rating(path, ladders) as turn:
        result = run("verify", "--data", path, "--wait", "0")
        assert "waiting for process " in result.stderr and expected in result.stderr
        timer = threading.Timer(0.1, turn)
        timer.start()
        timer.join()
        assert "35 rounds replayed" in done("verify", "--data", path)


def test_log_and_ratings_are_read_at_one_instant(
    path: Path, ladders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the process writes in that time. A process that ends waits for readers."""
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    wanted = {0: PlayerColumn.of([("duels", player) for player in PLAYERS])}
    with closing(reading.DataFile(path)) as file:
        before = file.read(wanted)
        with file.snapshot():
            ends = file.ends()
            submit(path, season(30, 5))
            rate(path, ladders)
            assert (file.ends(), file.read(wanted), sum(file.behind())) == (ends, before, 0)
        assert sum(file.ends()) == sum(ends) + 5 and file.read(wanted) != before


def test_another_window_or_ladders_file_is_refused(
    path: Path, ladders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would report differences that do not exist."""
    ladders.write_text(LADDERS.replace("80.0", "70.0"))
    assert f"and the notes in {path} differ from offset 0 on" in failed("verify", "--data", path)
    monkeypatch.setenv("STREAM_RATER_DUPLICATE_WINDOW", "7")
    said = failed("verify", "--data", path)
    assert "it was begun with duplicate_window = 100000, here it is 7" in said


def test_changes_are_followed(path: Path, ladders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start, and those that come."""
    watch, one = ("watch", "--data", path), ("--from-start", "--count", "1")
    lines = done(*watch, "--from-start", "--count", "120").splitlines()
    assert len(lines) == 120 and "rank 1" in lines[0] and "duels" in lines[0]
    assert "0 of 1 lines" in failed(*watch, "--count", "1", "--wait", "0.01")
    assert f"{path}: 0 of 1 lines" in failed(*watch, *one, "--wait", "0.01", "--player", "x")
    assert json.loads(done(*watch, *one, "--json"))["round_id"] == "r0"
    submit(path, season(30, 1))
    printed: list[str] = []
    words = (*watch, "--count", "4", "--wait", "60")
    with rating(path, ladders) as turn:
        ends, began = reading.DataFile.changed_ends, threading.Event()

        def looked(file: reading.DataFile) -> list[int]:
            found = ends(file)
            began.set()
            return found

        monkeypatch.setattr(reading.DataFile, "changed_ends", looked)
        thread = threading.Thread(target=lambda: printed.append(done(*words)))
        thread.start()
        assert began.wait(60)
        turn()
        thread.join()
    assert len(printed[0].splitlines()) == 4 and "r30" in printed[0]


def test_readers(path: Path) -> None:
    """Rejections with code and place; predictions, tuning and a dry run. None of them writes."""
    line = done("rejected", "--data", path, "--from-start", "--count", "1")
    assert "duplicate-round" in line and "r3" in line and "round-completed partition" in line
    found = json.loads(done("rejected", "--data", path, "--from-start", "--count", "1", "--json"))
    assert found["code"] == "duplicate-round" and json.loads(found["value"])["round_id"] == "r3"
    words = ("--ladder", "duels", "--format", "json", "p1", "p2")
    found = json.loads(done("predict", "--data", path, *words))
    assert 0 < found["sides"][0]["win"] < 1 and found["sides"][0]["players"][0]["rounds"] > 0
    text = done("correct", "void", "duels", "r3", "--data", path, "--dry-run")
    assert "8 of 8 players would move" in text or "would be touched" in text
    assert "30 rounds replayed" in done("verify", "--data", path)
    submit(path, season(30, 170))
    words = ("--ladder", "duels", "--trials", "2", "--workers", "1")
    result = run("tune", "--from-topic", "--data", path, *words)
    assert result.exit_code == 0, result.output
    assert "ladder 'duels': 200 rounds read, 1 rejected (1 duplicate-round)" in result.stderr
    assert "--data is for --from-topic" in failed("tune", path, "--data", path)


def test_a_player_a_ladder_and_the_file_are_described(path: Path, ladders: Path) -> None:
    """With the last rounds, the corrections, and how far the process is."""
    inspect = ("inspect", "--data", path)
    lines = done(*inspect, "--ladder", "duels", "--player", "p1").splitlines()
    assert lines[0] == "p1 on duels" and lines[1].startswith("shown: ")
    assert lines[-6].startswith("last rounds, ") and all("rank" in each for each in lines[-5:])
    nobody = failed(*inspect, "--ladder", "duels", "--player", "x")
    assert "ladder 'duels' has no player 'x'" in nobody
    done("correct", "void", "duels", "r3", "--data", path)
    rate(path, ladders)
    assert "corrections applied: 1" in done(*inspect, "--ladder", "duels")
    text = done(*inspect)
    assert "not in use" in text and "rejections: 1" in text
    with rating(path, ladders):
        assert "in use by process" in done(*inspect)


@pytest.mark.parametrize("corrections", [False, True])
def test_lost_ratings_are_computed_again(path: Path, ladders: Path, *, corrections: bool) -> None:
    """Whatever was lost, the process continues with the events that it would have had."""
    if corrections:
        done("correct", "void", "duels", "r3", "--data", path)
        done("correct", "remove", "duels", "p7", "--batched", "--data", path)
        rate(path, ladders)
        done("correct", "season", "duels", "1", "--keep", "0.5", "--sigma", "90", "--data", path)
        submit(path, season(30, 10))
        rate(path, ladders)
    other = path.with_name("other.db")
    done("backup", path, other)
    for table in ("beliefs", "recent", "positions"):
        execute(path, f"DELETE FROM {table}")
    execute(path, "INSERT INTO beliefs VALUES (0, 'duels', 'nobody', x'00')")
    assert "rounds replayed" in done("rebuild", "--data", path, "--replace")
    assert "all equal" in done("verify", "--data", path)
    for each in (path, other):
        submit(each, season(60, 20))
        rate(each, ladders)
        done("correct", "apply", "duels", "--data", each)
        rate(each, ladders)
        assert "all equal" in done("verify", "--data", each)
    assert all_events(path) == all_events(other) != ""
    assert not [each for each in path.parent.iterdir() if ".stream-rater-" in each.name]


def test_parts_that_wait_are_applied_after_a_rebuild(path: Path, ladders: Path) -> None:
    """Each player's rating is that before the parts, so the events are those without a loss."""
    submit(path, season(30, 7))
    estimate(path, ladders)
    other = path.with_name("other.db")
    done("backup", path, other)
    assert f"{path}: " in failed("verify", "--data", path)
    for table in ("beliefs", "recent"):
        execute(path, f"DELETE FROM {table}")
    result = run("rebuild", "--data", path, "--replace")
    assert "not rated yet, so the ratings were not compared" in result.stderr, result.output
    for each in (path, other):
        rate(each, ladders)
        assert "37 rounds replayed" in done("verify", "--data", each)
    assert all_events(path) == all_events(other) != ""


def all_events(path: Path) -> str:
    """What `watch` shows."""
    words = ("--from-start", "--json", "--count", "1000000", "--wait", "0.01", "--data", path)
    return run("watch", *words).stdout


def test_ratings_are_replaced_on_request_only(path: Path, ladders: Path) -> None:
    """By another ladders file, too. If it fails, the old file stays."""
    assert f"{path} holds ratings: give --replace" in failed("rebuild", "--data", path)
    before = path.read_bytes()
    with closing(reading.DataFile(path)) as file:
        file.ends()
        said = failed("rebuild", "--data", path, "--replace")
        assert "another program reads ratings.db: end it" in said
    assert "30 rounds replayed" in done("verify", "--data", path)
    assert len(path.read_bytes()) == len(before)
    ladders.write_text(LADDERS.replace("80.0", "70.0"))
    done("rebuild", "--data", path, "--replace")
    assert "30 rounds replayed" in done("verify", "--data", path)


def test_wrong_new_ratings_change_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a rebuild or an erasure: they are compared before they replace the old ones."""
    before = path.read_bytes()
    monkeypatch.setattr(
        rebuild_store, "fill_store", lambda found, *rest: fill_store(list(found)[1:], *rest)
    )
    for words, says in (
        (("rebuild", "--replace"), "8 missing"),
        (("erase", "p1"), "0 beliefs are different, 8 missing and 0 too many"),
    ):
        assert says in failed(*words, "--data", path)
        assert path.read_bytes() == before and not [*path.parent.glob("*.stream-rater-*")]
    assert "all equal" in done("verify", "--data", path)


@pytest.mark.parametrize("kind", ["a file", "a folder", "another folder, too"])
def test_an_id_is_erased(
    path: Path, ladders: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in no byte of the file or of its indexes. Ratings and offsets stay; rating goes on."""
    done("correct", "void", "duels", "r3", "--data", path)
    done("correct", "remove", "duels", "p7", "--from", day(20), "--data", path)
    submit(path, [a_round(n, "gertrude", "p1", round_id=f"g{n}", ladder="duels") for n in range(3)])
    done("correct", "remove", "duels", "gertrude", "--until", day(1), "--data", path)
    rate(path, ladders)
    index, another = path.with_name("ratings.db-index"), path.with_name("another")
    if kind == "another folder, too":
        monkeypatch.setenv("STREAM_RATER_INDEX", str(another))
    if kind == "a file":
        index.write_bytes(b"SQLite format 3\0gertrude")
    for each in {"a file": (), "a folder": (index,)}.get(kind, (index, another)):
        with closing(Index(each)) as made:
            made.apply([an_event("gertrude", 1)])
    other = path.with_name("other.db")
    done("backup", path, other)
    said = done("erase", "gertrude", "--pseudonym", "somebody", "--dry-run", "--data", path)
    assert "3 rounds and 1 correction name the player" in said and "nothing was" in said
    text = done("erase", "gertrude", "--pseudonym", "somebody", "--data", path)
    assert "beliefs, all equal to those before" in text
    assert not index.is_file() and not [*path.parent.glob("*.stream-rater-*")]
    for each in (*path.parent.glob("ratings.db*"), *index.rglob("*"), *another.rglob("*")):
        assert each.is_dir() or b"gertrude" not in each.read_bytes()
    for each, who in ((path, "somebody"), (other, "gertrude")):
        assert "all equal" in done("verify", "--data", each)
        submit(each, [a_round(9, who, "p2", round_id="g9", ladder="duels")])
        done("correct", "void", "duels", "g1", "--data", each)
        rate(each, ladders)
        assert "all equal" in done("verify", "--data", each)
    assert all_events(path) == all_events(other).replace("gertrude", "somebody") != ""


def test_what_cannot_be_erased_is_refused(
    path: Path, ladders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A player who is not there, a name that is taken, an index that cannot be deleted, waiting
    records; the file stays as it is."""
    before = path.read_bytes()
    assert "unknown-player" in failed("erase", "x", "--data", path)
    assert "is a player already" in failed("erase", "p1", "--pseudonym", "p2", "--data", path)
    assert "are for Kafka" in failed("erase", "p1", "--to", "new.", "--data", path)
    assert "give --to" in failed("erase", "p1")
    index = path.with_name("index")
    with closing(Index(index)) as made:
        made.apply([an_event("p1", 1)])
    (made.store.path / "a copy").write_bytes(b"p1")
    with monkeypatch.context() as environment:
        environment.setenv("STREAM_RATER_INDEX", str(index))
        assert "may have the id" in failed("erase", "p1", "--data", path)
    assert path.read_bytes() == before
    submit(path, season(30, 1))
    assert "1 record not rated yet" in failed("erase", "p1", "--data", path)


def test_a_backup_is_whole(path: Path, ladders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has all that was rated by then, and replaces no file. A failure leaves none."""
    to = path.with_name("backup.db")
    with rating(path, ladders):
        text = done("backup", path, to)
    assert text.startswith(f"{to}: 31 records and 120 rating changes; ")
    submit(path, season(30, 1))
    assert "30 rounds replayed" in done("verify", "--data", to)
    submit(to, season(30, 2))
    rate(to, ladders)
    assert "32 rounds replayed" in done("verify", "--data", to)
    to = path.with_name("copy.db")
    to.write_bytes(b"mine")
    assert failed("backup", path, to).startswith(f"{to}: there is such a file already")
    assert to.read_bytes() == b"mine"
    to.unlink()

    def late(_: reading.DataFile) -> list[str]:
        to.write_bytes(b"mine")
        return []

    with monkeypatch.context() as patch:
        patch.setattr(reading.DataFile, "faults", late)
        assert failed("backup", path, to).startswith(f"{to}: there is such a file already")
    assert to.read_bytes() == b"mine"
    to.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(reading.DataFile, "faults", lambda _: ["page 7 is wrong"])
        assert f"{path}: its copy is damaged, so it is, too: page 7" in failed("backup", path, to)
    assert not [each for each in path.parent.iterdir() if each.name.startswith("copy")]
    left = path.with_name("copy.db.stream-rater-abcdefgh")  # of a backup that was killed
    left.mkdir()
    assert "32 records" in done("backup", path, to)
    assert not left.exists() and to.exists()


def test_a_file_in_use_is_not_written_to(path: Path, ladders: Path) -> None:
    """The line says who has it, and what to use."""
    with rating(path, ladders):
        for words in ("submit ROUNDS", "correct apply duels", "rebuild --replace", "erase p1"):
            given = words.replace("ROUNDS", str(path.with_name("rounds.jsonl"))).split()
            assert "is in use by process" in failed(*given, "--data", path)


def test_commands_for_servers_say_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not use the servers in place of the file."""
    monkeypatch.setenv("STREAM_RATER_DATA", str(path))
    for command in ("run", "serve", "checkpoint"):
        assert failed(command).startswith(f"{command}: not for data files yet ({path})")


def test_no_command_makes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ratings.db"
    for words in ("verify --data FILE", "watch --data FILE", "move FILE", "backup FILE FILE.copy",
                  "correct apply duels --data FILE"):  # fmt: skip
        said = failed(*words.replace("FILE", str(path)).split())
        assert said.startswith(f"{path}: there is no such file")
    monkeypatch.setenv("STREAM_RATER_DATA", str(path))
    said = f"{path}: there is no such file: `stream-rater standalone` makes one"
    assert failed("correct", "apply", "duels") == said
    assert "is a directory" in run("standalone", tmp_path).stderr
    assert not list(tmp_path.iterdir())
