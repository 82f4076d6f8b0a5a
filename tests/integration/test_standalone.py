"""A standalone process: killed under load, on files that are in use or unusable, and its answers.
Tests that need no process of their own run it in a thread (`tests.builders.serves`)."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import msgspec
import pytest

from stream_rater.adapters.sqlite.database import Database, connect_reader
from stream_rater.adapters.sqlite.names import index_path, seasons_path
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import ANY_LADDER, BETTER_LADDER
from stream_rater.config.settings import Settings
from stream_rater.contract.record import RecordPlace
from stream_rater.places import ladders_of
from stream_rater.runtime import child
from tests.builders.doors import a_round
from tests.builders.serves import ServeHere, ServeThread
from tests.chaos.standalone import killed
from tests.data_files import audit, unfinished
from tests.integration import serving
from tests.integration.processes import Answering, Start, commands, done, stream_rater
from tests.integration.serving import Answered, ask, followed, index_process
from tests.rounds import ranked
from tests.waits import wait_until

DUEL = "/v1/ladders/duel"
SETTINGS = Settings(serve="127.0.0.1:0", serve_rate=0.0)

StartHere = Callable[..., ServeThread]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ratings.db"


@pytest.fixture
def start(tmp_path: Path, file: Path) -> Iterator[Start]:
    with commands(tmp_path, "standalone", str(file)) as found:
        yield partial(found, SETTINGS)


@pytest.fixture
def here(serve: ServeHere, file: Path) -> StartHere:
    return lambda settings=SETTINGS: serve(settings, data=file)


def refused(file: Path, *given: str) -> tuple[int, str]:
    """The exit code, and the line, of a process that cannot start."""
    ended = stream_rater("standalone", str(file), *given, settings=SETTINGS)
    *usage, line = ended.stderr.splitlines()
    assert not usage or usage[0].startswith("Usage: "), ended.stderr
    return ended.returncode, line


def a_body(round_id: str, *players: str) -> dict[str, Any]:
    players = players or ("ann", "bo")
    return a_round(round_id, standings=ranked(range(1, len(players) + 1), players))


def send(api: Answering, round_id: str, *players: str, **headers: str) -> Answered:
    """Send a round until it is taken or refused for good."""
    asked = partial(ask, api, f"{DUEL}/rounds", a_body(round_id, *players), **headers)
    return serving.first(asked, f"{round_id} is taken")


def rated(api: Answering, round_id: str) -> Any:
    found = ask(api, f"{DUEL}/rounds/{round_id}?wait=30").json
    assert found["state"] == "rated", found
    return found


# --- faults ---


def test_killed_under_load(tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost, and nothing is doubled."""
    found = killed("standalone", tmp_path, 2)
    assert (found.injected, found.lost, found.doubled, found.wrong) == (2, 0, 0, 0)
    assert found.updates > 100


def test_its_life(start: Start, here: StartHere, file: Path) -> None:
    """A second process is refused in one line that names the first. On SIGTERM it answers
    what it has accepted, exits with 0 and leaves an empty write-ahead log. If its index's process
    dies, it ends with the reason. Whatever was acknowledged is rated after the next start."""
    first = start()
    code, line = refused(file, "--listen", "127.0.0.1:0")
    assert code in (1, 2) and f"{file} is in use by process {first.pid} on " in line
    taken = {f"r{i}": send(first, f"r{i}", "ann", f"p{i}").json for i in range(20)}
    first.terminate()
    assert first.wait() == 0, first.log()
    wal = file.with_name(file.name + "-wal")
    assert not wal.exists() or not wal.stat().st_size

    second = start()
    taken["r20"] = send(second, "r20", "ann", "p20").json
    os.kill(index_process(second), signal.SIGKILL)
    assert second.wait() == 1
    last = second.log().splitlines()[-1]
    assert last == "stream-rater: the index's process ended with exit code -9"

    third = here()
    with closing(connect_reader(file)) as reader:
        wait_until(lambda: unfinished(reader) == 0, "all is rated")
    assert rated(third, "r20")["state"] == "rated"
    third.close()
    places = {
        ("duel", r): RecordPlace(each["partition"], each["offset"]) for r, each in taken.items()
    }
    own = ladders_of(at := Settings(data=str(file)))
    found = audit(file, own, Settings().duplicate_window, places)
    assert (found.lost, found.doubled, found.mistakes, found.updates) == (0, 0, [], 42)
    assert own == BETTER_LADDER
    moved = stream_rater("move", str(file), settings=SETTINGS)
    assert '"system":"two-moment"' in moved.stderr and "LADDERS" in moved.stderr
    done(at, "erase", "p3")
    assert ladders_of(at) == own
    with closing(Database.open(file)) as database:
        database.set_meta("ladders", None)  # as in a file of an earlier release
    assert ladders_of(at) is ANY_LADDER


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every file")
def test_a_read_only_file(file: Path) -> None:
    """It is refused in one line."""
    Database.open(file).close()
    file.chmod(0o444)
    code, line = refused(file)
    assert code in (1, 2) and str(file) in line and "readonly" in line.replace("-", "")


def damage(index: Path, fault: str) -> None:
    """Delete the index, make it one of an earlier release, cut it off, or fill it with zeros."""
    (data,) = index.glob("*/data.mdb")
    if fault == "cut off":
        os.truncate(data, 8192)
    elif fault == "zeros":
        data.write_bytes(bytes(data.stat().st_size))
    else:
        shutil.rmtree(index)
        if fault == "older":
            with closing(sqlite3.connect(index)) as connection:
                connection.executescript("CREATE TABLE index_state (data)")


def test_the_index_is_made_again(here: StartHere, file: Path) -> None:
    """It is, whatever happened to it while the process was stopped."""
    api = here()
    send(api, "r0")
    for number, fault in enumerate(("deleted", "older", "cut off", "zeros"), start=1):
        rated(api, f"r{number - 1}")
        before = ask(api, f"{DUEL}/players/ann").json
        assert before["rounds"] == number
        api.close()
        damage(index_path(file), fault)
        api = here()
        assert ask(api, f"{DUEL}/players/ann").json == before, fault
        send(api, f"r{number}")
    rated(api, "r4")
    assert ask(api, f"{DUEL}/players/ann").json["rounds"] == 5


# --- what it answers ---


def test_page_api_and_stream(here: StartHere) -> None:
    """It has page, players and stream. An answer with `min_offset` includes the round."""
    process = here()
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
    late = ask(process, f"{DUEL}/players/ann?min_offset={taken['offset'] + 9}&wait=0")
    assert late.status == 503
    page = ask(process, "/")
    assert page.status == 200 and "<html" in page.text


ORPHAN = """from stream_rater.testing import standalone
with standalone() as rater: print(rater.data, flush=True); __import__("os").abort()"""


def test_an_ephemeral_file(file: Path) -> None:
    """It is deleted at the end, also of a process whose parent was killed. A process that does not
    start, or ends by itself, says why."""
    with child.standalone() as rater:
        assert rater.ask(f"{DUEL}/rounds", a_body("r1"))["partition"] >= 0
        assert rater.ask(f"{DUEL}/rounds/r1?wait=30")["state"] == "rated"
        with pytest.raises(HTTPError) as refusal:
            rater.ask(f"{DUEL}/rounds", {})
        assert '"code":"bad-id"' in refusal.value.__notes__[0]
        done(Settings(data=str(rater.data)), "verify")
    assert not rater.data.parent.exists()
    killed = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, check=False)
    left = Path(killed.stdout.decode().strip()).parent
    wait_until(lambda: not left.exists(), "it is deleted")
    line = "standalone: give either FILE, or --ephemeral for a file that is deleted at the end"
    assert refused(file, "--ephemeral") == (2, f"stream-rater: {line}")
    with pytest.raises(Failed, match="set STREAM_RATER_SERVE"), child.standalone("127.0.0.1:x"):
        pass
    with pytest.raises(Failed, match=r"ratings\.db"), child.standalone() as rater:
        rater.data.unlink()
        wait_until(lambda: not rater.data.parent.exists(), "it ends")


def test_who_may_write(here: StartHere) -> None:
    """With a write token, those who have it, also on loopback. Without one, nobody on an address
    that others reach, or if there is a read token. The OpenAPI document says if one is needed."""

    def needs_token(api: Answering) -> bool:
        return {} not in ask(api, "/openapi.json").json["paths"]["/v1/rounds"]["post"]["security"]

    anybody = here()
    assert send(anybody, "r0").status == 202 and not needs_token(anybody)
    anybody.close()
    everywhere = here(msgspec.structs.replace(SETTINGS, serve="0.0.0.0:0"))
    assert ask(everywhere, f"{DUEL}/rounds", a_body("r1")).status in (403, 404, 405)
    everywhere.close()
    read_only = here(msgspec.structs.replace(SETTINGS, serve_token="r"))
    answer = send(read_only, "r1", Authorization="Bearer r")
    assert (answer.status, answer.json["code"]) == (403, "writing-off")
    read_only.close()
    guarded = here(msgspec.structs.replace(SETTINGS, serve_write_token="w"))
    assert send(guarded, "r1").status == 401 and needs_token(guarded)
    assert send(guarded, "r1", Authorization="Bearer w").status == 202


def test_past_seasons_while_it_runs(file: Path, here: StartHere) -> None:
    """Several commands at once write standings beside the file. The process answers from there."""
    api = here()
    for number in range(12):
        assert ask(api, f"{DUEL}/rounds", a_body(f"r{number}", "ann", "bo", "cy")).status == 202
    correction = {"event_type": "season-started", "season": 3, "keep": 0.5}
    assert ask(api, f"{DUEL}/corrections", correction).status == 202
    assert ask(api, f"{DUEL}/rounds", a_body("later", "bo", "ann")).status == 202

    def kept() -> list[str]:
        return [each["standings"] for each in ask(api, f"{DUEL}/seasons").json["seasons"]]

    keep = partial(stream_rater, "season-standings", "duel", "--data", str(file), settings=SETTINGS)
    for _ in range(2):
        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(keep) for _ in range(2)]
        assert [each.result().returncode for each in jobs] == [0, 0]
        wait_until(lambda: kept() == ["kept", "season-runs"], "they are in the index")
        page = ask(api, f"{DUEL}/seasons/0/leaderboard?limit=2").json
        assert [each["player"] for each in page["rows"]] == ["ann", "bo"]
        last = ask(api, f"{DUEL}/seasons/0/leaderboard?cursor={page['next']}").json
        assert [each["player"] for each in last["rows"]] == ["cy"] and last["next"] is None
        around = ask(api, f"{DUEL}/seasons/0/leaderboard?around=cy&limit=1").json
        assert [each["rank"] for each in around["rows"]] == [3]
        seasons_path(file).unlink()
        wait_until(lambda: "kept" not in kept(), "they are gone")
