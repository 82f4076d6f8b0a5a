"""What benchmarks measure and print is what they say; that anything is fast is not asserted."""

import importlib
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs

from stream_rater.columns.sharding import shards_of
from stream_rater.evaluation.calibrating import Calibration
from stream_rater.evaluation.fits import DEFAULT, LOG_LOSS
from stream_rater.evaluation.measures import Difference
from stream_rater.rating import stages as systems
from stream_rater.rating.model import PERFORMANCE
from tests.benchmarks import games as bench
from tests.benchmarks import stage1
from tests.benchmarks.document.rows import Origin, made
from tests.benchmarks.document.tables import BY_SECTION, verdicts
from tests.benchmarks.lab import figures, games
from tests.benchmarks.lab.forward import CALIBRATED, ORDER_OF_ALL, Fitted, Variant
from tests.benchmarks.lab.games import Verdict
from tests.benchmarks.stream import steps
from tests.benchmarks.stream.against import beside_null, compared
from tests.benchmarks.stream.ground import Published
from tests.benchmarks.stream.latency import Fed, Seen, feed, found
from tests.benchmarks.stream.null import Sample, plain_round_from_json, regrouped
from tests.benchmarks.stream.rounds import WORKLOADS
from tests.benchmarks.stream.rounds import made as made_round
from tests.rounds import as_json

THEN = Origin("2026-11-25 09:12", "abcdef1", "make bench-games", "one machine")


def test_brute_force_sees_an_error() -> None:
    """The error reported is that of the worst performance."""
    for size in (2, 60):
        for gaussian in (False, True):
            wave = stage1.wave_of_size(size, 4, seed=1)
            config = stage1.GAUSSIAN if gaussian else stage1.LOGISTIC
            found = systems.estimate(config, wave)[:, PERFORMANCE].copy()
            assert stage1.error_points(wave, size, found, gaussian=gaussian) < 1e-6
            found[size + 1] += 0.25
            error = stage1.error_points(wave, size, found, gaussian=gaussian)
            assert error == pytest.approx(0.25, rel=0, abs=1e-6)  # the other error's bound


def fitted(system: str, log_loss: float) -> Fitted:
    variants = [
        Variant(
            tuned_for=aim, config={}, last=Calibration(), first_log_loss=0.6,
            order=70.0, order_all=None, log_loss=log_loss, brier=0.2, calibration_error=0.01,
            us_update=2.0, failed_rounds=0, chance_error=0.03,
        )
        for aim in (DEFAULT, CALIBRATED, LOG_LOSS)
    ]  # fmt: skip
    return Fitted(system=system, variants=variants, gain={"default": 0.7, "tuned": 0.68})


def report(path: Path) -> Path:
    """A game with two of ours and two peers: the chosen one is worse in log loss than one, tuned,
    and better than one untuned."""
    worse, better, same = ((0.02, 0.01, 0.03), (1, 0.5, 1.5), (1, -1, 3))
    found = [
        Verdict(ours=ours, peer=peer, measure=measure, difference=Difference(*gap), verdict=said)
        for ours in ("elo-mmr", "bar")
        for peer, measure, gap, said in (
            ("trueskill-package", LOG_LOSS, worse, "worse"),
            ("trueskill-package", ORDER_OF_ALL, better, "better"),
            ("plain-elo", LOG_LOSS, same, "no difference"),
        )
    ]
    found.append(structs.replace(found[1], measure=LOG_LOSS, case="calibrated-tuned"))
    fits = [fitted("elo-mmr", 0.65), fitted("bar", 0.64), fitted("trueskill-package", 0.63)]
    game = games.Result(
        game="codeforces, 5 against 5", rounds=90, scored_rounds=81, sides=2.0, systems=fits,
        ours="elo-mmr", verdicts=found,
    )  # fmt: skip
    path.write_bytes(figures.as_json([game], ["6 configurations were tried."]))
    return path


def test_a_game_is_a_row_of_each_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the file's name and cut, and the chosen system's differences to each peer."""
    assert bench.main([str(report(tmp_path / "games.json"))]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    (row,) = made([msgspec.json.decode(line)], THEN)
    assert row.name == "games/codeforces/5-against-5"
    assert (row.figures["value"], row.figures["unit"]) == (0.65, "nats")
    assert row.figures["note"] == "ours: elo-mmr; 6 configurations were tried."
    assert row.figures["ratio"]["bar log_loss"] == 0.64
    assert row.figures["ratio"]["trueskill-package log_loss log_loss low"] == 0.01
    (verdict,) = verdicts(row)
    assert verdict.figures["game"] == "`codeforces`, 5 against 5"
    assert (verdict.figures["part"], verdict.figures["counts"]) == ("chose", "+1 =1 -1")
    assert verdict.figures["best"] == "trueskill-package, by 0.0200"
    assert (verdict.figures["log_loss"], verdict.figures["calibration_error"]) == (0.65, 0.01)
    assert {key: text for key, text in verdict.figures.items() if "[" in str(text)} == {
        "log_loss trueskill-package": "**+0.02 [+0.01, +0.03]**",
        "log_loss plain-elo": "*+1 [-1, +3]*",
    }
    cells = BY_SECTION["goal"].explained([row, row]).splitlines()[-1]
    assert cells.startswith("| chose | `elo-mmr` | 2 |")
    assert "| +2 =0 -0 | +0 =2 -2 | +0 =0 -0 |" in cells  # untuned, peers tuned; both tuned; order
    assert "| 2 of 2, at most 0.010 | 0 of 2, at most 0.030 |" in cells
    assert BY_SECTION["goal-worse"].explained([row]).endswith("| trueskill-package +0.02 |")


def test_files_of_unusual_rounds_are_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unequal teams, ties, seats and scores of some rounds. A round of one is rejected."""
    random, lines = np.random.default_rng(3), list[bytes]()
    for number in range(60):
        names = [f"p{i}" for i in random.permutation(30)[:6]]
        cut = 1 + number % 5
        sides: list[dict[str, Any]] = [
            {"team": names[:cut], "rank": 1}, {"team": names[cut:], "rank": 1 + int(number % 7 > 0)}
        ]  # fmt: skip
        if number % 3 == 0:
            sides[0] |= {"seat": "home", "score": 3 - sides[1]["rank"]}
            sides[1] |= {"score": 1}
        lines.append(as_json(*sides[: 1 if number == 9 else 2], round_id=f"r{number}"))
    path = tmp_path / "odd.jsonl"
    path.write_bytes(b"\n".join(lines))
    assert bench.main(["--quick", "--file", str(path), str(tmp_path / "none.jsonl")]) == 1
    out, err = capsys.readouterr()
    names = [msgspec.json.decode(line)["name"] for line in out.splitlines()]
    assert names == ["games/odd", "games/odd/without-seats-and-scores"]
    assert "1 round was invalid" in err and "skipped games: " in err
    assert "| another file | `two-moment` | 1 |" in err and "| `odd` | `elo-mmr` |" in err


def first(name: str, count: int, seed: int = 1) -> list[Any]:
    return list(itertools.islice(WORKLOADS[name].rounds(seed), count))


def test_lost_and_doubled_are_reported() -> None:
    """An event too few and one too many do not make up for each other."""
    due = Counter({b"x:a": 2, b"x:b": 1})
    assert Published(Counter(due), 0.0, Sample(0, [])).wrong(due) == ""
    published = Published(Counter({b"x:a": 1, b"x:b": 2}), 0.0, Sample(0, []))
    assert published.wrong(due) == "1 events lost, 1 doubled"


def test_latencies() -> None:
    """Of the rounds after the first fifth of the time; what came after the end was behind."""
    due = {f"r{i}": 10.0 + i for i in range(10)}
    seen = Seen([f"r{i}" for i in range(10)], [10.0 + i + 0.1 * (i + 1) for i in range(10)])
    phase = found(Fed(due, 20.0, np.arange(10.0)), seen)
    assert np.allclose(np.sort(phase.latency_s), np.arange(0.3, 1.05, 0.1), rtol=0, atol=1e-9)
    assert (phase.rate, phase.lag, phase.late_s.tolist()) == (1.0, 0, list(range(2, 10)))
    assert phase.quantile_ms(0.5) == pytest.approx(600.0)
    assert phase.quantile_ms(0.99) == phase.quantile_ms(1.0) == pytest.approx(1000.0)
    late = found(Fed(due, 19.5, np.zeros(10)), seen)
    assert late.lag == 1 and late.lag_ms == pytest.approx(950.0)


class Starved:
    """A feeder's clock and producer. To submit a round takes 2 s, and it is rated at once."""

    def __init__(self) -> None:
        self.now_s = 10.0
        self.seen = Seen([], [])

    def time(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def poll(self, _: float) -> None:
        """Nothing to report."""

    def produce(self, _: str, value: bytes, __: bytes) -> None:
        self.now_s += 2.0
        event = plain_round_from_json(value)
        for _entry in event.standings:
            self.seen.round_ids.append(event.round_id)
            self.seen.at_s.append(self.now_s)


def test_a_starved_feeder_is_not_forgiven() -> None:
    """A late round was due by the schedule: its delay is latency, and the load is as asked for."""
    starved: Any = Starved()
    rounds = [made_round(f"r{i}", "x", ["a", "b"]) for i in range(5)]
    phase = found(feed(starved, "", rounds, 2.0, lambda: None, starved), starved.seen)
    assert phase.latency_s.tolist() == [3.0, 3.0, 4.0, 4.0, 5.0, 5.0, 6.0, 6.0]
    assert (phase.rate, phase.lag) == (2.0, 6)
    assert phase.late_s.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_the_null_pipeline_regroups_all() -> None:
    """Every player of every round once, in the part of its shard, with its place."""
    rounds = [plain_round_from_json(each.value) for each in first("lobby5", 50)]
    want = Counter((r.round_id, e.player, e.rank) for r in rounds for e in r.standings)
    got: Counter[tuple[str, str, int]] = Counter()
    for shard, part in regrouped(rounds, 8):
        assert set(shards_of(part.players, 8).tolist()) == {shard}
        rows = zip(part.index, part.players, part.place, strict=True)
        got.update((part.round_ids[i], player, place) for i, player, place in rows)
    assert got == want


def test_ratios_are_of_turns() -> None:
    """A rival's figures are medians; its ratios are those of each turn, not of the medians."""

    def turns(*pairs: tuple[float, float]) -> list[dict[str, float]]:
        return [{"p50_ms": p50, "p99_ms": p99} for p50, p99 in pairs]

    first = turns((10.0, 100.0), (40.0, 200.0), (20.0, 600.0))
    ours = turns((5.0, 50.0), (10.0, 400.0), (40.0, 60.0))
    alone, beside = compared("x", first, first), compared("x", ours, first)
    assert (alone.value, alone.ratio) == (200.0, {"p50_ms": 20.0})
    assert (beside.value, beside.unit, beside.ratio["p50_ms"]) == (60.0, "ms, p99", 10.0)
    assert [beside.ratio[f"p50_{each}"] for each in ("least", "ratio", "most")] == [0.25, 0.5, 2.0]
    assert [beside.ratio[f"p99_{each}"] for each in ("least", "ratio", "most")] == [0.1, 0.5, 2.0]
    ours, null = turns((10.0, 50.0), (30.0, 60.0)) * 2, turns((5.0, 25.0), (10.0, 20.0)) * 2
    by_null = beside_null("x", ours, null)
    assert (by_null.value, by_null.unit, by_null.ratio["p50_times"]) == (2.5, "times", 2.5)
    assert (by_null.ratio["p99_ms"], by_null.ratio["null_p50_ms"]) == (55.0, 7.5)


def test_every_step_is_there() -> None:
    """A step that was renamed would be left out in silence."""
    for place in (each for places in steps.STEPS.values() for each in places):
        module, _, name = place.partition(":")
        found: Any = importlib.import_module(module)
        for each in name.split("."):
            found = getattr(found, each)
        assert callable(found), place
