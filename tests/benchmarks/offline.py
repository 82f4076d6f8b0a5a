"""The offline commands on whole files, and ten years of Codeforces in memory. `offline/FILE`: what
a round costs, without the start of the command, in `rate`, `evaluate`, and `evaluate` with two
configurations, in turns in this process. `update/codeforces`, `evaluate/codeforces` and
`record/codeforces`: the time of both stages and of the whole command, and the size of beliefs.
`history/KIND`: what a bounded history costs in accuracy."""

import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache, partial
from io import StringIO
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np

from stream_rater.cli import app
from stream_rater.config.ladders import any_ladder
from stream_rater.contract import events
from stream_rater.rating.parameters import DEFAULT_KEPT, EloMMR
from stream_rater.replay.files import read_lines
from stream_rater.replay.pool import ONE_WAVE, Pool
from stream_rater.rounds.batch import OneRound
from tests.benchmarks.measure import ROOT, Effort, Result, best_s, result, shared, times_s
from tests.benchmarks.stage1 import LOGISTIC
from tests.builders.bounded_history import SEASONS, distances
from tests.rounds import Reader

CONFIG = EloMMR(weight_limit=0.2, sigma_limit=80.0)
FILES = ("cwl", "formula-one", "map-rando", "codeforces")
TURNS = 5
KEPT = 8, DEFAULT_KEPT, 24, 30  # The numbers of past performances that `history` compares.


class Made(NamedTuple):
    rounds: int
    size: int  # The number of players in a round.
    players: int  # The number of players in the file.


MADE = {
    "duels": Made(500_000, 2, 100_000), "duels-few": Made(500_000, 2, 1_000),
    "twelve": Made(100_000, 12, 100_000), "twelve-few": Made(100_000, 12, 1_000),
}  # fmt: skip
QUICK = 100  # The divisor of the number of rounds for a quick run.


def made_up(count: int, made: Made) -> Iterator[bytes]:
    """Rounds a minute apart, each of so many players, drawn from all."""
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
    evaluate = ("evaluate", "--format", "json", "--config", str(config), "--train", "0.1")
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
        "rounds": rounds, "results": results / rounds, "rate": spent["rate"] / rounds * 1e6,
        "rate_results_a_second": results / spent["rate"],
        "evaluate_rounds_a_second": rounds / spent["evaluate"],
        "second": (spent["two"] - spent["evaluate"]) / spent["evaluate"],
        "rate_start_s": median(starts["rate"]),
    }  # fmt: skip
    note = "without the start of the commands; medians"
    return result(f"offline/{name}", spent["evaluate"] / rounds * 1e6, "us/round", ratio, note)


# --- Codeforces -----------------------------------------------------------------------------------

FILE, QUICK_ROUNDS = "codeforces", 60


@cache
def _read(effort: Effort) -> list[OneRound]:
    """The decoded and validated rounds. Decoding is not measured."""
    reader, most = Reader(any_ladder(LOGISTIC)), QUICK_ROUNDS if effort.quick else None
    return [reader.read(line) for line in islice(read_lines(shared(FILE)), most)]


def _replayed(config: EloMMR, rounds: list[OneRound]) -> Pool:
    pool = Pool(config)
    for offset, standings in enumerate(rounds):
        pool.rate(standings, offset)
    return pool


def _update(effort: Effort) -> Result:
    """Both stages of every round, one after the other, in one thread; then with names, too."""
    rounds = _read(effort)
    updates = sum(len(standings.players) for standings in rounds)
    names: dict[str, int] = {}
    rows = [
        np.array([names.setdefault(player, len(names)) for player in standings.players], np.int64)
        for standings in rounds
    ]

    def both_stages() -> None:
        pool = Pool(LOGISTIC)
        pool.make_room(len(names))
        for offset, standings in enumerate(rounds):
            pool.rate_rows(standings.batch, rows[offset], ONE_WAVE, np.array([offset]))

    best = best_s(effort.turns(3), ours=both_stages, named=lambda: _replayed(LOGISTIC, rounds))
    note = f"{len(rounds)} rounds, {updates} updates; named: players looked up by name"
    value, named = (best[each] / updates * 1e6 for each in ("ours", "named"))
    return result("update/codeforces", value, "us/update", {"named": named}, note)


def _decode(path: Path) -> None:
    """Decompress and decode the file, and no more: what `evaluate` cannot do without."""
    with gzip.open(path, "rb") as file:
        for line in file:
            events.round_from_json(line)


def _evaluate(effort: Effort) -> Result:
    """The whole command, its start included, in turns with decoding alone in this process."""
    path = shared(FILE)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.json")
        config.write_bytes(msgspec.json.encode(LOGISTIC))
        if effort.quick:
            lines, path = islice(read_lines(path), QUICK_ROUNDS), Path(folder, path.name)
            path.write_bytes(gzip.compress(b"".join(lines), 6))
        words = ["evaluate", str(path), "--config", str(config), "--train", "0.1"]
        command = [sys.executable, "-m", "stream_rater", *words, "--format", "json"]
        found: list[str] = []

        def run() -> None:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found.append(done.stdout)

        best = best_s(effort.turns(3), ours=run, decode=lambda: _decode(path))
    (scores,) = json.loads(found[-1])
    note = (
        f"pair inversion {scores['pair_inversion']:.3f} %, "
        f"rank deviation {scores['rank_deviation']:.3f} %; decode {best['decode']:.2f} s"
    )
    ratio = {"decode": best["ours"] / best["decode"]}
    return result("evaluate/codeforces", best["ours"], "s", ratio, note)


def _final_mu(pool: Pool) -> dict[str, float]:
    return {player: float(header["mu"]) for player, header in pool}


def _record(effort: Effort) -> Result:
    """Bytes of final beliefs, and the error in mu that they make against factors in float64."""
    rounds = _read(effort)
    kept = _replayed(LOGISTIC, rounds)
    sizes = np.array([len(kept.belief_bytes(player)) for player, _ in kept])
    short = _final_mu(kept)
    del kept
    full = _final_mu(_replayed(msgspec.structs.replace(LOGISTIC, history="full"), rounds))
    error = np.array([abs(short[player] - mu) for player, mu in full.items()])
    note = f"{len(sizes)} beliefs, p99 {np.percentile(sizes, 99):.0f} bytes"
    ratio = {"p999_error_points": float(np.percentile(error, 99.9))}
    return result("record/codeforces", float(sizes.mean()), "bytes", ratio, note)


def _history(kind: str, effort: Effort) -> Result:
    """How far mu ever is from the full history in seasons of a kind, by the number kept."""
    ratio, seeds = dict[str, float](), 1 if effort.quick else 3
    for kept in KEPT:
        config = msgspec.structs.replace(CONFIG, history=kept)
        found = np.array([distances(config, SEASONS[kind], seed) for seed in range(seeds)])
        ratio |= {f"worst {kept}": float(found.max()), f"mean {kept}": float(found[:, -1].mean())}
    return result(f"history/{kind}", ratio[f"worst {DEFAULT_KEPT}"], "points", ratio)


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    "update/codeforces": _update, "evaluate/codeforces": _evaluate, "record/codeforces": _record,
    **{f"history/{kind}": partial(_history, kind) for kind in SEASONS},
    **{f"offline/{name}": partial(_measure, name) for name in (*FILES, *MADE)},
}  # fmt: skip
