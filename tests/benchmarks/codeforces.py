"""Ten years of Codeforces: `update`, `evaluate` and `record` `/codeforces`.

The file is `data/codeforces.jsonl.gz` in the shared folder ($STREAM_RATER_SHARED, or `shared`
beside the project); without it these are skipped.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import Ladder, any_ladder
from stream_rater.contract import events
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay.files import read_lines
from stream_rater.replay.pool import ONE_WAVE, Pool
from stream_rater.rounds.batch import OneRound
from tests.benchmarks.measure import Effort, Result, Skipped, best_s, result, times_s
from tests.rounds import Reader

ROOT = Path(__file__).resolve().parents[2]
CONFIG = EloMMR(weight_limit=0.23, sigma_limit=54.0, rho=0.04)
QUICK_ROUNDS = 60
TOP = 1000
NEAR_POINTS = 0.1
"""Swaps of players closer than this are none."""


def _file() -> Path:
    """The rounds."""
    shared = Path(os.environ.get("STREAM_RATER_SHARED") or ROOT.parent / "shared")
    path = shared / "data" / "codeforces.jsonl.gz"
    if not path.is_file():
        raise Skipped("no data/codeforces.jsonl.gz in the shared folder: set STREAM_RATER_SHARED")
    return path


@cache
def _rounds(most: int | None) -> list[OneRound]:
    """The rounds, read and valid; decoding is none of what is measured."""
    reader = Reader(any_ladder(CONFIG))
    return [reader.read(line) for line in islice(read_lines(_file()), most)]


def _read(effort: Effort) -> list[OneRound]:
    return _rounds(QUICK_ROUNDS if effort.quick else None)


def _replayed(config: EloMMR, rounds: list[OneRound]) -> Pool:
    pool = Pool(Ladder(rating=config))
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
        pool = Pool(Ladder(rating=CONFIG))
        pool.make_room(len(names))
        for offset, standings in enumerate(rounds):
            pool.rate_rows(standings.batch, rows[offset], ONE_WAVE, np.array([offset]))

    best = best_s(effort.turns(3), ours=both_stages, named=lambda: _replayed(CONFIG, rounds))
    note = f"{len(rounds)} rounds, {updates} updates; named: players looked up by name"
    value, named = (best[each] / updates * 1e6 for each in ("ours", "named"))
    return result("update/codeforces", value, "us/update", {"named": named}, note)


def _decode(path: Path) -> None:
    """Decompress and decode the file, and no more: what `evaluate` cannot do without."""
    with gzip.open(path, "rb") as file:
        for line in file:
            events.round_from_json(line)


def _first(path: Path, rounds: int, folder: Path) -> Path:
    """A file of the first rounds of a file."""
    part = folder / path.name
    with gzip.open(part, "wb", compresslevel=6) as file:
        file.writelines(islice(read_lines(path), rounds))
    return part


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "stream_rater", *arguments]


def _evaluate(effort: Effort) -> Result:
    """The whole command, its start included, in turns with decoding alone in this process."""
    path = _file()
    if subprocess.run(
        _command("evaluate", "--help"), cwd=ROOT, capture_output=True, check=False
    ).returncode:
        raise Skipped("this stream-rater has no command `evaluate`")
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "config.json"
        config.write_bytes(msgspec.json.encode(CONFIG))
        if effort.quick:
            path = _first(path, QUICK_ROUNDS, Path(name))
        command = _command("evaluate", str(path), "--config", str(config), "--format", "json")
        found: list[str] = []

        def run() -> None:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found.append(done.stdout)

        times = times_s(effort.turns(3), ours=run, decode=lambda: _decode(path))
    (scores,) = json.loads(found[-1])
    ours, decode = times["ours"], times["decode"]
    note = (
        f"pair inversion {scores['pair_inversion']:.3f} %, "
        f"rank deviation {scores['rank_deviation']:.3f} %; decode {min(decode):.2f} s"
    )
    ratio = {"decode": min(ours) / min(decode), "decode_median": median(ours) / median(decode)}
    return result("evaluate/codeforces", min(ours), "s", ratio, note)


def _final_mu(pool: Pool) -> dict[str, float]:
    return {player: float(header["mu"]) for player, header in pool}


def widest_swap(true: Floats, found: Floats) -> float:
    """The widest gap in `true` (n,), falling, between two that stand the other way in `found`."""
    swapped = (found[:, None] < found) & (true[:, None] > true)
    gaps = np.where(swapped, true[:, None] - true, 0.0)
    return float(gaps.max(initial=0.0))


def _record(effort: Effort) -> Result:
    """Bytes of the final beliefs, and what they cost in mu against every factor in float64."""
    rounds = _read(effort)
    kept = _replayed(CONFIG, rounds)
    sizes = np.array([len(kept.belief_bytes(player)) for player, _ in kept])
    short = _final_mu(kept)
    del kept
    full = _final_mu(_replayed(msgspec.structs.replace(CONFIG, history="full"), rounds))
    error = np.array([abs(short[player] - mu) for player, mu in full.items()])
    top = sorted(full, key=lambda player: -full[player])[:TOP]
    swap = widest_swap(np.array([full[p] for p in top]), np.array([short[p] for p in top]))
    note = (
        f"{len(sizes)} beliefs, p99 {np.percentile(sizes, 99):.0f} bytes; order of the top {TOP} "
        f"{'kept' if swap < NEAR_POINTS else 'NOT kept'} but for swaps closer than {NEAR_POINTS}"
    )
    ratio = {
        "p999_error_points": float(np.percentile(error, 99.9)),
        "max_error_points": float(error.max()),
        "mean_error_points": float(error.mean()),
        "top_widest_swap_points": swap,
    }
    return result("record/codeforces", float(sizes.mean()), "bytes", ratio, note)


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    "update/codeforces": _update,
    "evaluate/codeforces": _evaluate,
    "record/codeforces": _record,
}
