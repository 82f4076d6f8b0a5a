"""`stream-rater standalone` as a process: killed under load, on files that are in use or unusable,
and what it answers."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from local.tools import ROOT
from stream_rater.adapters.sqlite.database import Database, connect_reader, index_path
from stream_rater.adapters.sqlite.season_file import seasons_path
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import Settings
from stream_rater.contract.submissions import Place
from tests.chaos.standalone import killed
from tests.data_files import audit, unfinished
from tests.integration.processes import WorkerProcess, environment_of, wait_until
from tests.integration.serving import Answered, ask, followed
from tests.waits import HANGS_S

pytestmark = pytest.mark.integration

DUEL = "/v1/ladders/duel"
SETTINGS = Settings(serve="127.0.0.1:0", serve_rate=0.0)

Start = Callable[..., WorkerProcess]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The name of a data file that does not exist."""
    return tmp_path / "ratings.db"


@contextmanager
def starts(folder: Path, file: Path) -> Iterator[Start]:
    """Starts processes on a file, which are killed at the end."""
    started: list[WorkerProcess] = []

    def start(settings: Settings = SETTINGS, *, ready: bool = True) -> WorkerProcess:
        words = [sys.executable, "-m", "stream_rater", "standalone", str(file)]
        log = folder / f"standalone-{len(started)}.log"
        started.append(WorkerProcess(settings, log, command=words))
        if ready:
            started[-1].wait_ready()
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.close()


@pytest.fixture
def start(tmp_path: Path, file: Path) -> Iterator[Start]:
    with starts(tmp_path, file) as found:
        yield found


def refused(file: Path, *given: str) -> tuple[int, str]:
    """The exit code, and the line, of a process that cannot start."""
    done = subprocess.run(
        [sys.executable, "-m", "stream_rater", "standalone", str(file), *given],
        cwd=ROOT, env=environment_of(SETTINGS), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    *usage, line = done.stderr.splitlines()
    assert not usage or usage[0].startswith("Usage: "), done.stderr
    return done.returncode, line


def a_round(round_id: str, *players: str) -> dict[str, Any]:
    standings = [{"player": each, "rank": i + 1} for i, each in enumerate(players or ("ann", "bo"))]
    return {
        "round_id": round_id, "completed_at": "2026-05-01T20:00:00Z", "standings": standings,
    }  # fmt: skip


def send(api: WorkerProcess, round_id: str, *players: str, **headers: str) -> Answered:
    """Send a round until it is taken or refused for good."""
    found: list[Answered] = []

    def taken() -> bool:
        found.append(ask(api, f"{DUEL}/rounds", a_round(round_id, *players), **headers))
        return found[-1].status != 503

    wait_until(taken, f"{round_id} is taken", moves=api.moves)
    return found[-1]


def rated(api: WorkerProcess, round_id: str) -> Any:
    """The state of a round that is rated."""
    found = ask(api, f"{DUEL}/rounds/{round_id}?wait=30").json
    assert found["status"] == "rated", found
    return found


def ended(process: WorkerProcess) -> None:
    """End it by SIGTERM."""
    process.terminate()
    assert process.wait() == 0, process.log()


# --- faults ---


def test_killed_under_load(tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost, and nothing is doubled."""
    found = killed("standalone", tmp_path, 5)
    assert (found.injected, found.lost, found.doubled, found.wrong) == (5, 0, 0, 0)
    assert found.updates > 100


def test_sigterm_under_load(start: Start, file: Path) -> None:
    """It answers what it has taken, and exits with 0. Its file needs no repair: the write-ahead
    log is empty."""
    process = start()
    taken = {f"r{i}": send(process, f"r{i}", "ann", f"p{i}").json for i in range(20)}
    ended(process)
    wal = file.with_name(file.name + "-wal")
    assert not wal.exists() or not wal.stat().st_size
    again = start()
    with closing(connect_reader(file)) as reader:
        wait_until(lambda: unfinished(reader) == 0, "all is rated")
    ended(again)
    places = {("duel", r): Place(each["partition"], each["offset"]) for r, each in taken.items()}
    found = audit(file, ANY_LADDER, Settings().duplicate_window, places)
    assert (found.lost, found.doubled, found.mistakes, found.updates) == (0, 0, [], 40)


def test_a_second_process_is_refused(start: Start, file: Path) -> None:
    """In one line that names the first one, which is not disturbed."""
    process = start()
    code, line = refused(file, "--listen", "127.0.0.1:0")
    assert code in (1, 2) and f"{file} is in use by process {process.pid} on " in line
    assert send(process, "r1").status == 202


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """Each in one line that names the file, and nothing in it is changed."""
    folder, notes, theirs, newer = (tmp_path / name for name in ("folder", "notes", "db", "newer"))
    folder.mkdir()
    notes.write_text("notes of mine, longer than the header of a file of SQLite" * 100)
    with closing(sqlite3.connect(theirs)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
        connection.commit()
    Database.open(newer).close()
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version = 99")
    expected = {
        folder: "is a directory", notes: "no file of SQLite", theirs: "no data file",
        newer: "has format 99", tmp_path / "none" / "ratings.db": "No such file or directory",
    }  # fmt: skip
    before = {each: each.read_bytes() for each in expected if each.is_file()}
    for each, why in expected.items():
        code, line = refused(each)
        assert code in (1, 2) and str(each) in line and why in line, line
    assert {each: each.read_bytes() for each in before} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every file")
def test_a_read_only_file(file: Path) -> None:
    """It is refused in one line."""
    Database.open(file).close()
    file.chmod(0o444)
    code, line = refused(file)
    assert code in (1, 2) and str(file) in line and "readonly" in line.replace("-", "")


@pytest.mark.parametrize("fault", ["deleted", "older", "damaged", "no index"])
def test_the_index_is_made_again(start: Start, file: Path, fault: str) -> None:
    """If it was deleted while the process was stopped, or is of another format, or damaged."""
    process = start()
    send(process, "r1")
    rated(process, "r1")
    before = ask(process, f"{DUEL}/players/ann").json
    ended(process)
    index = index_path(file)
    if fault == "deleted":
        index.unlink()
    elif fault == "older":
        with closing(sqlite3.connect(index)) as connection:
            connection.executescript("DROP TABLE index_state; CREATE TABLE index_state (data)")
    else:
        whole = index.read_bytes()
        index.write_bytes(whole[:100] + b"x" * 2000 if fault == "damaged" else b"notes" * 2000)
    again = start()
    assert ask(again, f"{DUEL}/players/ann").json == before
    send(again, "r2")
    rated(again, "r2")
    assert ask(again, f"{DUEL}/players/ann").json["rounds"] == 2


# --- what it answers ---


def test_the_index_process_dies(start: Start, file: Path) -> None:
    """The whole process ends with the reason, so that its supervisor starts it again; then what was
    acknowledged is rated and in the index."""
    first = start()
    send(first, "r1", "ann", "bob")
    tasks = Path(f"/proc/{first.pid}/task").iterdir()
    children = {int(each) for task in tasks for each in (task / "children").read_text().split()}
    (index,) = (each for each in children if b"spawn_main" in command_of(each))
    os.kill(index, signal.SIGKILL)
    assert first.wait() == 1
    assert "the index's process ended with exit code -9" in first.log()
    second = start()
    assert rated(second, "r1")["status"] == "rated"


def command_of(pid: int) -> bytes:
    """The command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_page_api_and_stream(start: Start) -> None:
    """The page, the board, a player, and the events as they come. An answer with `min_offset`
    includes the round."""
    process = start()
    send(process, "r0")
    rated(process, "r0")  # before it, there is no such ladder to follow
    with followed(process, f"{DUEL}/changes") as stream:
        for number in range(1, 6):
            taken = send(process, f"r{number}").json
            at = f"min_offset={taken['offset']}&wait=30"
            player = ask(process, f"{DUEL}/players/ann?{at}").json
            assert player["rounds"] == number + 1
        changes = (each for each in stream if each.kind == "rating-changed")
        events = [msgspec.json.decode(next(changes).data) for _ in range(10)]
    assert [each["round_id"] for each in events] == [f"r{1 + n // 2}" for n in range(10)]
    board = ask(process, f"{DUEL}/leaderboard?{at}")
    assert board.status == 200
    late = ask(process, f"{DUEL}/players/ann?min_offset={taken['offset'] + 9}&wait=0")
    assert late.status == 503
    page = ask(process, "/")
    assert page.status == 200 and "<html" in page.text
    bad = ask(process, f"{DUEL}/rounds", {**a_round("r9"), "standings": []})
    assert bad.status == 422


def test_who_may_write(start: Start) -> None:
    """On an address that others reach, nobody without a token. With one, who has it; also on the
    loopback interface."""
    everywhere = msgspec.structs.replace(SETTINGS, serve="0.0.0.0:0")
    process = start(everywhere)
    assert ask(process, f"{DUEL}/rounds", a_round("r1")).status in (403, 404, 405)
    ended(process)
    process = start(msgspec.structs.replace(SETTINGS, serve_write_token="w"))
    assert send(process, "r1").status == 401
    assert send(process, "r1", Authorization="Bearer w").status == 202


def test_past_seasons_while_it_runs(file: Path, start: Start) -> None:
    """The command keeps the standings beside the file, several at once; the process that runs
    answers from there, also after the file of standings was deleted and written again."""
    api = start()
    for number in range(12):
        assert ask(api, f"{DUEL}/rounds", a_round(f"r{number}", "ann", "bo", "cy")).status == 202
    correction = {"event_type": "season-started", "season": 3, "keep": 0.5}
    assert ask(api, f"{DUEL}/corrections", correction).status == 202
    assert ask(api, f"{DUEL}/rounds", a_round("later", "bo", "ann")).status == 202
    words = [sys.executable, "-m", "stream_rater", "season-standings", "duel", "--data", str(file)]
    for _ in range(2):
        jobs = [
            subprocess.Popen(
                words, cwd=ROOT, env=environment_of(SETTINGS), stdin=subprocess.DEVNULL
            )
            for _ in range(2)
        ]
        assert [each.wait(HANGS_S) for each in jobs] == [0, 0]
        found = ask(api, f"{DUEL}/seasons").json["seasons"]
        assert [(e["season"], e["standings"]) for e in found] == [(0, "kept"), (3, "season-runs")]
        page = ask(api, f"{DUEL}/seasons/0/leaderboard?limit=2").json
        assert [each["player"] for each in page["rows"]] == ["ann", "bo"]
        last = ask(api, f"{DUEL}/seasons/0/leaderboard?cursor={page['next']}").json
        assert [each["player"] for each in last["rows"]] == ["cy"] and last["next"] is None
        around = ask(api, f"{DUEL}/seasons/0/leaderboard?around=cy&limit=1").json
        assert [each["rank"] for each in around["rows"]] == [3]
        seasons_path(file).unlink()
    assert ask(api, f"{DUEL}/seasons").json["seasons"][0]["standings"] == "season-runs"
