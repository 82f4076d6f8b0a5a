"""Ten years of Codeforces: `update`, `evaluate` and `record` `/codeforces`.

Without `data/codeforces.jsonl.gz` in the shared folder these are skipped.
"""

import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from stream_rater.config.ladders import Ladder, any_ladder
from stream_rater.contract import events
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay.files import read_lines
from stream_rater.replay.pool import ONE_WAVE, Pool
from stream_rater.rounds.batch import OneRound
from tests.benchmarks.measure import ROOT, Effort, Result, best_s, result, shared
from tests.benchmarks.stage1 import LOGISTIC as CONFIG
from tests.rounds import Reader

FILE, QUICK_ROUNDS = "codeforces", 60


@cache
def _read(effort: Effort) -> list[OneRound]:
    """The rounds, read and valid; decoding is none of what is measured."""
    reader, most = Reader(any_ladder(CONFIG)), QUICK_ROUNDS if effort.quick else None
    return [reader.read(line) for line in islice(read_lines(shared(FILE)), most)]


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


def _evaluate(effort: Effort) -> Result:
    """The whole command, its start included, in turns with decoding alone in this process."""
    path = shared(FILE)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.json")
        config.write_bytes(msgspec.json.encode(CONFIG))
        if effort.quick:
            lines, path = islice(read_lines(path), QUICK_ROUNDS), Path(folder, path.name)
            path.write_bytes(gzip.compress(b"".join(lines), 6))
        words = ["evaluate", str(path), "--config", str(config), "--format", "json"]
        command = [sys.executable, "-m", "stream_rater", *words]
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
    """Bytes of the final beliefs, and what they cost in mu against every factor in float64."""
    rounds = _read(effort)
    kept = _replayed(CONFIG, rounds)
    sizes = np.array([len(kept.belief_bytes(player)) for player, _ in kept])
    short = _final_mu(kept)
    del kept
    full = _final_mu(_replayed(msgspec.structs.replace(CONFIG, history="full"), rounds))
    error = np.array([abs(short[player] - mu) for player, mu in full.items()])
    note = f"{len(sizes)} beliefs, p99 {np.percentile(sizes, 99):.0f} bytes"
    ratio = {"p999_error_points": float(np.percentile(error, 99.9))}
    return result("record/codeforces", float(sizes.mean()), "bytes", ratio, note)


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    "update/codeforces": _update,
    "evaluate/codeforces": _evaluate,
    "record/codeforces": _record,
}
