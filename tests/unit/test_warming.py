"""Times have nothing in them that happens once: compiling, loading, touching first."""

from collections.abc import Iterator
from typing import Any

import pytest

from stream_rater.columns.compiling import SharedCache, watchers
from stream_rater.evaluation import comparison
from stream_rater.evaluation.comparison import compare
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.warming import MOST_RUNS, timed, warm
from stream_rater.rating.parameters import EloMMR, RatingConfig, Topcoder

SEASON = list(season(Kind(players=20, rounds=30, per_round=4), 1))


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What tests load or watch is gone afterwards."""
    monkeypatch.setattr(SharedCache, "ready", set(SharedCache.ready))
    before = list(watchers)
    yield
    assert watchers == before


def test_a_run_that_loads_a_kernel_is_run_again() -> None:
    """So is one that compiles for other types; and what never rests has an end."""
    runs: list[int] = []

    def loading(most: int) -> int:
        runs.append(len(runs))
        if len(runs) <= most:
            SharedCache.ready.add(f"kernel {most} {len(runs)}")
        return runs[-1]

    def compiling() -> int:
        runs.append(len(runs))
        if len(runs) == 1:
            for each in watchers:
                each.compiling("kernel", 1, 1)
        return runs[-1]

    for run, due in ((lambda: loading(0), 0), (lambda: loading(1), 1), (compiling, 1)):
        runs.clear()
        assert timed(run) == due
    runs.clear()
    timed(lambda: loading(99))
    assert len(runs) == MOST_RUNS


def test_evaluate_is_warm_before_its_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each configuration, alone or beside another; and no round is missed or rated twice."""
    calls: list[str] = []
    play = evaluate

    def warming_up(config: Any, *rest: Any, **options: Any) -> None:
        calls.append(f"warm {config.__struct_config__.tag}")
        warm(config, *rest, **options)

    def playing(rounds: Any, config: Any, **options: Any) -> Any:
        calls.append(f"play {config.__struct_config__.tag}")
        return play(rounds, config, **options)

    monkeypatch.setattr(comparison, "warm", warming_up)
    monkeypatch.setattr(comparison, "evaluate", playing)
    configs: list[tuple[str, RatingConfig]]
    configs = [("a", EloMMR(weight_limit=0.2, sigma_limit=80.0)), ("b", Topcoder())]
    for count in (1, 2):
        calls.clear()
        rows = compare("file", iter(SEASON), configs[:count], 0.0)
        due = ["warm elo-mmr", "play elo-mmr", "warm topcoder", "play topcoder"]
        assert calls == due[: 2 * count]
        assert [row.rounds for row in rows] == [30] * count
