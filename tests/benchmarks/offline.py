"""The offline commands on whole files: what a round costs beyond their start.

`rate`, `evaluate`, and `evaluate` with two configurations run in turns, all in this process, which
has their code compiled and loaded. What a command takes to start is measured by itself.
"""

import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from stream_rater.cli import app
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay.files import read_lines
from tests.benchmarks.measure import ROOT, Effort, Result, result, shared, times_s

CONFIG = EloMMR(weight_limit=0.2, sigma_limit=80.0)
FILES = ("cwl", "formula-one", "map-rando", "codeforces")
TURNS = 5


class Made(NamedTuple):
    """A file of made-up rounds."""

    rounds: int
    size: int
    """The number of players in a round."""
    players: int
    """The number of players in the file."""


MADE = {
    "duels": Made(500_000, 2, 100_000),
    "duels-few": Made(500_000, 2, 1_000),
    "twelve": Made(100_000, 12, 100_000),
    "twelve-few": Made(100_000, 12, 1_000),
}
QUICK = 100
"""The divisor of the number of rounds for a quick run."""


def made_up(count: int, made: Made) -> Iterator[bytes]:
    """Rounds of so many players each, drawn from all: a minute apart."""
    rng = random.Random(1)
    for i in range(count):
        chosen = rng.sample(range(made.players), made.size)
        days, minutes = divmod(i, 1440)
        event = {
            "round_id": f"r{i}",
            "ladder": "duel",
            "completed_at": f"{2000 + days // 336}-{1 + days // 28 % 12:02}-{1 + days % 28:02}"
            f"T{minutes // 60:02}:{minutes % 60:02}:00Z",
            "standings": [
                {"player": f"player-{player:06}", "rank": rank}
                for rank, player in enumerate(chosen, 1)
            ],
        }
        yield msgspec.json.encode(event) + b"\n"


def _measure(name: str, effort: Effort) -> Result:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if name not in MADE:
            return _measured(name, shared(name), effort, folder)
        path, made = folder / f"{name}.jsonl", MADE[name]
        with path.open("wb") as file:
            file.writelines(made_up(made.rounds // (QUICK if effort.quick else 1), made))
        return _measured(name, path, effort, folder)


def _measured(name: str, path: Path, effort: Effort, folder: Path) -> Result:
    """The commands on a file, in turns."""
    config, again, one = folder / "config.json", folder / "again.json", folder / "one.jsonl"
    for each in (config, again):
        each.write_bytes(msgspec.json.encode(CONFIG))
    one.write_bytes(b"".join(islice(read_lines(path), 1)))
    evaluate = ("evaluate", "--format", "json", "--config", str(config))
    options = {
        "rate": ("rate", "--out", str(folder / "ratings.jsonl")),
        "evaluate": evaluate,
        "two": (*evaluate, "--config", str(again)),
    }
    printed: dict[str, str] = {}

    def run(what: str, file: Path) -> None:
        command, *rest = options[what]
        with redirect_stdout(StringIO()) as shown:
            app.main.main([command, str(file), *rest], standalone_mode=False)
        printed[what] = shown.getvalue()

    for what in options:
        run(what, one)
        run(what, path)
    times = times_s(effort.turns(TURNS), **{each: partial(run, each, path) for each in options})
    spent = {what: median(each) for what, each in times.items()}
    command = [sys.executable, "-m", "stream_rater", *options["rate"], str(one)]
    starts = times_s(
        effort.turns(TURNS),
        rate=lambda: subprocess.run(command, cwd=ROOT, capture_output=True, check=True),
    )
    scores = msgspec.json.decode(printed["evaluate"])[0]
    rounds, results = scores["rounds"], scores["results"]
    ratio = {
        "rounds": rounds,
        "results": results / rounds,
        "rate": spent["rate"] / rounds * 1e6,
        "rate_results_a_second": results / spent["rate"],
        "evaluate_rounds_a_second": rounds / spent["evaluate"],
        "second": (spent["two"] - spent["evaluate"]) / spent["evaluate"],
        "rate_start_s": median(starts["rate"]),
    }
    note = "without the start of the commands; medians"
    return result(f"offline/{name}", spent["evaluate"] / rounds * 1e6, "us/round", ratio, note)


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    f"offline/{name}": partial(_measure, name) for name in (*FILES, *MADE)
}
