"""Hypothesis' strategies for rounds, seasons and parameters, for all property tests."""

from typing import Any

from hypothesis import strategies as st

from stream_rater.rating.parameters import EloMMR, EloMMX


def spreads() -> st.SearchStrategy[dict[str, float]]:
    """The spread of skills and of performances, in either of its two pairs of parameters."""
    limits = st.fixed_dictionaries(
        {"weight_limit": st.floats(0.02, 2.0), "sigma_limit": st.floats(30.0, 200.0)}
    )
    return limits | st.fixed_dictionaries({"beta": st.floats(80, 500), "gamma": st.floats(10, 150)})


def evolving() -> dict[str, st.SearchStrategy[Any]]:
    """The parameters that Elo-MMR and Elo-MMx share, besides the spreads."""
    return {
        "ties": st.sampled_from(("full", "split")),
        "dnf": st.sampled_from(("tied-last", "not-compared")),
        "drift_per_day": st.just(0.0) | st.floats(0.1, 500.0),
        "newcomer_weights": st.lists(st.floats(0.2, 5.0), max_size=3).map(tuple),
        "initial_mu": st.floats(-2000.0, 3000.0),
        "initial_sigma": st.floats(80.0, 500.0),
    }


def rhos() -> st.SearchStrategy[Any]:
    """Inverse momentum, from none to infinite."""
    return st.sampled_from((0.0, "inf")) | st.floats(0.01, 5.0)


def configs(rho: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[EloMMR]:
    """Elo-MMR(rho) with its full history."""
    return _of(EloMMR, rho=rhos() if rho is None else rho)


def gaussian_configs() -> st.SearchStrategy[EloMMX]:
    return _of(EloMMX)


def _of(system: Any, **more: Any) -> st.SearchStrategy[Any]:
    def configured(pair: dict[str, float], **others: Any) -> Any:
        return system(**pair, **others, history="full")

    return st.builds(configured, pair=spreads(), **more, **evolving())


def days() -> st.SearchStrategy[int]:
    """When a round is played: days after the first of 2026."""
    return st.integers(0, 400)


def weights() -> st.SearchStrategy[float]:
    return st.just(1.0) | st.floats(0.05, 20.0)
