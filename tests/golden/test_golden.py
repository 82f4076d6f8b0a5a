"""Ratings equal those of an independent implementation in another language (shared/golden)."""

import gzip
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.config import Ladder, one_ladder
from stream_rater.lab.replay import Pool
from stream_rater.rating.parameters import from_builtins
from stream_rater.standings import Reader

SETS = ("duels", "lobbies", "ties", "weighted", "arena")
CASES = (
    "elo-mmr-rho0.04", "elo-mmr-rho0", "elo-mmr-rho1", "elo-mmr-rho1-split-ties", "elo-mmr-inf",
    "elo-mmr-drift",
)  # fmt: skip
GOLDEN = 1e-6
"""Points: what golden/README.md asks. (We are within 2e-12: both sides compute in float64.)"""
GOLDEN_CODEFORCES = 1e-5
"""Points: the same after 150 rounds of up to thousands of players. (We are within 6e-10.)"""


def expected(shared: Path, name: str) -> dict[str, Any]:
    packed = (shared / "golden" / f"{name}.expected.json.gz").read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=dict[str, Any])


def check(case: dict[str, Any], lines: list[bytes], tolerance: float) -> None:
    config = from_builtins(case["config"])
    reader, pool = Reader(one_ladder(config)), Pool(Ladder(rating=config))
    for offset, line in enumerate(lines):
        pool.rate(reader.read(line), offset)
    beliefs = dict(pool)
    rated = {p: [float(b["mu"]), float(b["sigma"])] for p, b in beliefs.items()}
    assert case["ratings"] == {p: pytest.approx(r, rel=0, abs=tolerance) for p, r in rated.items()}
    assert case["rounds_played"] == {p: int(b["rounds"]) for p, b in beliefs.items()}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SETS)
def test_every_player_of_a_set_is_rated_as_expected(shared: Path, name: str, case: str) -> None:
    """Each Elo-MMR case of each set gives the golden mu, sigma and rounds of every player."""
    lines = gzip.decompress((shared / "golden" / f"{name}.rounds.jsonl.gz").read_bytes())
    check(expected(shared, name)[case], lines.splitlines(), GOLDEN)


@pytest.mark.parametrize("name", SETS)
def test_no_case_is_left_out(shared: Path, name: str) -> None:
    """The cases above are all Elo-MMR cases there are."""
    theirs = expected(shared, name)
    assert set(CASES) == {case for case in theirs if theirs[case]["config"]["system"] == "elo-mmr"}


def test_real_rounds_are_rated_as_expected(shared: Path) -> None:
    """The first 150 rounds of Codeforces give the golden belief of all 13,852 players."""
    case = expected(shared, "codeforces-150")["elo-mmr-rho0.04"]
    with gzip.open(shared / "data" / "codeforces.jsonl.gz") as rounds:
        lines = list(islice(rounds, 150))
    assert len(case["ratings"]) == 13_852
    check(case, lines, GOLDEN_CODEFORCES)
