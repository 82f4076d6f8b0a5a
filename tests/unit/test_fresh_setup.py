"""After `make python` nothing compiles: in no command, in Python, or in a standalone process."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local.tools import ROOT
from stream_rater.cli import app
from stream_rater.config.settings import Settings
from tests import pages
from tests.builders.commands import as_file
from tests.builders.lines import a_correction, a_round, a_seed
from tests.integration.processes import Answering, commands
from tests.integration.serving import ask
from tests.rounds import ranked
from tests.waits import HANGS_S

pytestmark = pytest.mark.slow

MADE = """
import sys
from stream_rater.cli import compile_kernels
from stream_rater.columns import kernel_files

def noting(does):
    def recorded(path, *rest):
        found = does(path, *rest)
        if found:
            with open(sys.argv[1], "a") as file:
                file.write(f"{path}\\n")
        return found
    return recorded

kernel_files._read, kernel_files._write = map(noting, (kernel_files._read, kernel_files._write))
compile_kernels.main([])
"""
"""Does what `make python` does, and writes which files it reads or writes into a file."""

COUNTING = """
import os, sys

def begins(_, event):
    with open(os.environ["COMPILED"], "a") as file:
        file.write(f"{event.data['dispatcher'].py_func.__qualname__}\\n")

class Finder:
    def find_spec(self, name, *_):
        if name == "numba.core.dispatcher":
            from numba.core import event
            methods = {"on_start": begins, "on_end": lambda *_: None}
            event.register("numba:compile", type("", (event.Listener,), methods)())

sys.meta_path.insert(0, Finder())
"""
"""As `sitecustomize`: each Python process writes the name of each function that numba compiles."""

OFFLINE = {"convert", "evaluate", "predict", "rate", "tune"}
"""The commands that need neither servers nor a data file. (`evidence` compares all systems.)"""

SEASON = "season.jsonl"
OTHERS = (
    "demo --once",
    f"rate {SEASON} --config two-moment.json --changes=changes.jsonl --records",
    f"evaluate {SEASON} --config deploy/examples/elo-mmr.json --config two-moment.json",
    f"tune {SEASON} --system elo-mmr --train 0.5 --trials 3 --out tuned.json",
    f"tune {SEASON} --system two-moment --train 0.5 --metric log_loss --trials 3 --out tuned.json",
    f"tune {SEASON} --system two-moment --train 0.5 --trials 3 --executor processes:2",
)
"""Variations of what the documents show, on more rounds."""

OF_A_LADDER = """
import stream_rater
for system in ("elo-mmr", "two-moment"):
    ladder = stream_rater.Ladder(system)
    ladder.rate_file("season.jsonl")
    ladder.what_if(["p1", "p2"]), ladder.history("p1"), ladder.calibration(), ladder.tune(trials=3)
    ladder.plot("p1"), ladder.plot_board(), ladder.plot_calibration(), ladder._repr_html_()
"""

WRITING = (
    "correct season LADDER 2 --keep 0.5 --sigma 200", "correct void LADDER r2 --batched",
    "correct void LADDER r4 --batched", "correct amend LADDER amended.json --batched",
    "correct apply LADDER", "reset LADDER ann --sigma 200",
    "seed players.csv --ladder LADDER --scale openskill --yes", "correct merge LADDER dee ann",
    "seed --from-ladder LADDER --ladder LADDER-3 --yes", "submit season.jsonl",
)  # fmt: skip
"""What writes to a data file while no process has it; a process rates it later."""
READING = (
    "verify --wait 60", "correct remove LADDER bo --dry-run", "season-standings LADDER",
    "inspect --ladder LADDER --player ann", "predict --ladder LADDER ann cy --ranks 1,2",
    "watch --from-start --count 4", "rejected --from-start --wait 1", "inspect",
    "tune --from-topic --ladder season --trials 3",
)  # fmt: skip
ALONE = ("backup a.db copy.db", "rebuild --replace", "verify", "erase ann", "inspect")
"""What needs the file for itself, and no process behind it."""

ON_SERVERS = (
    "run", "serve", "submit season.jsonl", "verify --wait 60", "checkpoint season",
    "correct void season r2", "inspect", "verify --wait 60", "rebuild --replace",
    "move a.db",
)  # fmt: skip
"""On Kafka and Redis, in this order, the last ones without workers."""

LADDERS_FILE = ROOT / "deploy" / "examples" / "ladders.toml"
SETTINGS = Settings(serve="127.0.0.1:0", serve_rate=0.0, ladders=str(LADDERS_FILE))
LADDERS = ("royale-eu", "duel")  # By Elo-MMR, and by the two-moment filter.


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the kernels that `make python` compiles, and no others."""
    folder = tmp_path_factory.mktemp("cache")
    subprocess.run([sys.executable, "-c", MADE, str(folder / "made")], cwd=ROOT, check=True)
    for path in sorted({*(folder / "made").read_text().split()}):
        copied = folder.joinpath(*Path(path).parts[-3:])
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copied)
    return folder


Note = Callable[[str], None]


@pytest.fixture
def note(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Note]:
    """`note(text)` records what was compiled since the last call. In the end nothing may be."""
    monkeypatch.chdir(tmp_path)
    Path("deploy").symlink_to(ROOT / "deploy")
    Path("build").mkdir()
    Path("two-moment.json").write_text('{"system": "two-moment"}')
    Path("players.csv").write_text("player,mu,sigma\nq1,25,8\nq2,28,3\n")
    as_file(Path(SEASON), map(a_season_s_round, range(60)))
    as_file(Path("amended.json"), [{"round_id": "r5", "standings": ranked([1, 2], ["cy", "bo"])}])
    Path("sitecustomize.py").write_text(COUNTING)
    counter = tmp_path / "compiled"
    counter.touch()
    alone = {"NUMBA_CACHE_DIR": cache, "XDG_CACHE_HOME": tmp_path, "COMPILED": counter,
             "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}  # fmt: skip
    for name, value in {**alone, "MPLBACKEND": "Agg"}.items():
        monkeypatch.setenv(name, str(value))
    known, recorded = {*cache.rglob("*.kernel")}, list[str]()

    def compiled_by(text: str) -> None:
        recorded.extend(f"{text}: {name}" for name in counter.read_text().split())
        counter.write_text("")

    yield compiled_by
    assert recorded == []
    assert {*cache.rglob("*.kernel")} == known


def a_season_s_round(number: int) -> dict[str, Any]:
    """Of two players, of three, or of two teams."""
    three = [f"p{(number * 3 + i * 4) % 11}" for i in range(3)]
    if number % 5 == 4:
        return a_round(number, ladder="season", standings=[
            {"team": three[:2], "rank": 1}, {"team": [three[2], "x"], "rank": 2}
        ])  # fmt: skip
    return a_round(number, *three[: 2 + number % 2], ladder="season")


def run(*words: str, **variables: str) -> None:
    """Run this Python to its end, which must be a good one."""
    done = subprocess.run(
        [sys.executable, *words], env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


def offline() -> Iterator[list[str]]:
    """The documents' commands that read what is in the tree. (Those of operations need servers.)"""
    for page in (pages.README, *pages.pages()):
        if page.parent.name == "operations":
            continue
        for program, *words in pages.commands(page.read_text()):
            if program.endswith("stream-rater") and words[0] in OFFLINE:
                of_tree = [word for word in words if word.startswith("deploy/")]
                if of_tree and "dask:" not in "".join(words):
                    yield words


def test_every_command_is_played() -> None:
    """By a test here, or on Kafka and Redis (`test_fresh_worker`); all but `evidence`."""
    played = (*OTHERS, *WRITING, *READING, *ALONE, *ON_SERVERS, "standalone", *OFFLINE)
    there = {f"{name} {of}".strip() for name, group in app.main.commands.items()
             for of in getattr(group, "commands", ("",))}  # fmt: skip
    said = {" ".join(line.split()[: 1 + line.startswith("correct ")]) for line in played}
    assert said == there - {"evidence"}  # which compares all systems


def test_commands(note: Note) -> None:
    """Commands of the documents, and variations on more rounds, as five are too few for `tune`."""
    shown = [words for words in offline() if words[0] != "tune"]
    assert {words[0] for words in shown} == OFFLINE - {"tune"}
    for words in [*shown, *map(str.split, OTHERS)]:
        run("-m", "stream_rater", *words)
        note(" ".join(words))


def test_python(note: Note) -> None:
    """The Python of the documents, and whatever else a ladder answers."""
    shown = [pages.README.read_text(), pages.text("notebook.md"), pages.text("reference/python.md")]
    for text in (*map(python_of, shown), OF_A_LADDER):
        run("-c", text)
        note(text)


def python_of(page: str) -> str:
    """All Python blocks of a page, without the systems that are neither of the usual ones."""
    blocks = pages.blocks(page, "python")
    return "\n".join(each for each in blocks if '"glicko"' not in each and "other." not in each)


def test_a_standalone_process(note: Note, tmp_path: Path) -> None:
    """Its answers, and the commands on its file, on a ladder by each of the usual systems."""
    variables = {"STREAM_RATER_DATA": "a.db", "STREAM_RATER_LADDERS": SETTINGS.ladders}

    def type_in(lines: Iterable[str]) -> None:
        for line in lines:
            for ladder in LADDERS if "LADDER" in line else ("",):
                words = line.replace("LADDER", ladder)
                run("-m", "stream_rater", *words.split(), **variables)
                note(words)

    with commands(tmp_path, "standalone", str(tmp_path / "a.db")) as start:
        for lines in (WRITING, ALONE):
            process = start(SETTINGS)
            note("a start")
            if lines is ALONE:
                type_in(READING)
            else:
                for ladder in LADDERS:
                    play(process, ladder, note)
            process.terminate()
            assert process.wait() == 0, process.log()
            note("an end")
            type_in(lines)


def play(api: Answering, ladder: str, note: Note) -> None:
    """Rounds, questions and corrections on a ladder."""
    at = f"/v1/ladders/{ladder}"
    duel = {"sides": [{"players": ["ann"]}, {"players": ["new"]}]}
    teams = {"sides": [{"players": ["ann"]}, {"players": ["bo", "cy"]}]}
    kept = [a_round(i, "ann", "bo", "cy", ladder=ladder) for i in (*range(2, 6), 10, 11, 12)]
    team = [{"team": ["ann", "cy"], "rank": 1}, {"team": ["bo", "dee"], "rank": 2}]
    amended = a_round(1, "bo", "ann", ladder=ladder)
    questions: list[tuple[str, Any]] = [
        (f"{at}/rounds", a_round(1, "ann", "bo", ladder=ladder)), (f"{at}/rounds/r1?wait=30", None),
        ("/v1/rounds", kept), (f"{at}/rounds", a_round(6, ladder=ladder, standings=team)),
        (f"{at}/rounds/r6?wait=30", None), ("/", None), (at, None), (f"{at}/players/ann", None),
        (f"{at}/players:lookup", {"players": ["ann", "zoe"]}), (f"{at}/leaderboard", None),
        (f"{at}/players/ann/history", None), (f"{at}/leaderboard?around=ann", None),
        (f"{at}/predict", duel), (f"{at}/predict", teams),
        (f"{at}/what-if", {**teams, "ranks": [2, 1]}),
        (f"{at}/balance", {"players": ["ann", "bo", "cy", "dee"]}),
        (f"{at}/players/ann/explain", None),
        (f"{at}/corrections", a_seed(7, "sid", ladder=ladder)),
        (f"{at}/corrections", a_correction("round-amended", **amended)),
        (f"{at}/corrections", a_correction("round-voided", ladder=ladder, round_id="r3")),
        (f"{at}/corrections", a_correction("season-started", ladder=ladder, season=1, keep=0.8)),
        (f"{at}/rounds", a_round(8, "ann", "sid", ladder=ladder)),
        (f"{at}/rounds/r8?wait=30", None),
        (f"{at}-2/rounds?seed_from={ladder}", a_round(9, "ann", "bo", ladder=f"{ladder}-2")),
        (f"{at}-2/rounds/r9?wait=30", None),
    ]  # fmt: skip
    for path, body in questions:
        found = ask(api, path, body)
        assert found.status in (200, 202), f"{path}: {found.text}"
        note(f"{path} on {ladder}")
