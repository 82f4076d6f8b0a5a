"""Rating configurations: what they mean, and what is refused with its place."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.rating.parameters import (
    DEFAULT_KEPT,
    BadParameters,
    EloMMR,
    MinusSigma,
    fingerprint,
    from_builtins,
    from_json,
)

PAIR = {"system": "elo-mmr", "weight_limit": 0.23, "sigma_limit": 54}


@given(st.floats(1e-3, 1e3), st.floats(1e-2, 1e3))
def test_both_forms_are_the_same_pair(w: float, s: float) -> None:
    """(beta, gamma) = (sqrt(1 + 1/w) s, sqrt(w) s) gives back (weight_limit, sigma_limit)."""
    config = EloMMR(beta=math.sqrt(1.0 + 1.0 / w) * s, gamma=math.sqrt(w) * s)
    # relative: squares and roots; where w is large, 1 + 1/w forgets digits of 1/w
    assert (w, s) == pytest.approx(config.limits, rel=1e-14 * (1.0 + w))


@given(st.floats(1.0, 1e3), st.floats(1e-3, 1e6))
def test_limits_keep_beta_and_gamma(beta: float, gamma: float) -> None:
    """gamma^2 = w s^2 and beta^2 = (1 + 1/w) s^2 hold for any pair, gamma far above beta, too."""
    w, s = EloMMR(beta=beta, gamma=gamma).limits
    assert (math.sqrt(1.0 + 1.0 / w) * s, math.sqrt(w) * s) == pytest.approx(
        (beta, gamma), rel=1e-13
    )


def test_limits_as_given() -> None:
    """(weight_limit, sigma_limit) is taken as it stands."""
    found = from_builtins(PAIR)
    assert isinstance(found, EloMMR) and found.limits == (0.23, 54.0)


def test_defaults() -> None:
    """What is left out has the defaults of the contract; history is the service's K."""
    config = from_json(msgspec.json.encode(PAIR))
    assert config == EloMMR(weight_limit=0.23, sigma_limit=54.0)
    assert (config.initial_mu, config.initial_sigma, config.provisional_rounds) == (1500, 350, 5)
    assert (config.ties, config.drift_per_day, config.newcomer_weights) == ("full", 0.0, ())
    assert (config.history, config.kept, config.skip_all_tied) == (20, DEFAULT_KEPT, False)


def test_json_and_tables_agree() -> None:
    """The same configuration in JSON and as a TOML table is the same configuration."""
    table = {
        **PAIR, "rho": "inf", "ties": "split", "history": "full", "newcomer_weights": [2, 1.5],
        "display": {"minus_sigma": 3}, "floor": 0, "drift_per_day": 4,
    }  # fmt: skip
    config = from_builtins(table)
    assert config == from_json(msgspec.json.encode(table))
    assert isinstance(config, EloMMR)
    assert (config.momentum, config.kept) == (math.inf, 0)
    assert config.display == MinusSigma(minus_sigma=3.0)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"sigma_limit": 0}, "$.sigma_limit"),
        ({"sigma_limit": -1}, "$.sigma_limit"),
        ({"sigma_limit": math.nan}, "$.sigma_limit"),
        ({"sigma_limit": math.inf}, "$.sigma_limit"),
        ({"sigma_limit": 1e-300}, "$.sigma_limit"),
        ({"weight_limit": 0}, "$.weight_limit"),
        ({"weight_limit": "much"}, "$.weight_limit"),
        ({"initial_sigma": 0}, "$.initial_sigma"),
        ({"initial_mu": math.nan}, "$.initial_mu"),
        ({"initial_mu": 1e10}, "$.initial_mu"),
        ({"rho": -1}, "$.rho"),
        ({"rho": "infinite"}, "$.rho"),
        ({"rho": math.nan}, "$.rho"),
        ({"ties": "half"}, "$.ties"),
        ({"drift_per_day": -1}, "$.drift_per_day"),
        ({"newcomer_weights": [1, 0]}, "$.newcomer_weights["),
        ({"newcomer_weights": [math.nan]}, "$.newcomer_weights["),
        ({"history": 0}, "$.history"),
        ({"history": 65}, "$.history"),
        ({"history": "some"}, "$.history"),
        ({"display": "sigma"}, "$.display"),
        ({"display": {"plus_sigma": 1}}, "plus_sigma"),
        ({"provisional_rounds": -1}, "$.provisional_rounds"),
        ({"floor": math.inf}, "$.floor"),
        ({"system": "elo-mmm"}, "elo-mmm"),
        ({"sigma_limits": 1}, "sigma_limits"),
        ({"beta": 200}, "either"),
        ({"beta": 200, "gamma": 30}, "either"),
        ({"weight_limit": None}, "either"),
        ({"weight_limit": None, "beta": 200}, "either"),
    ],
)
def test_nonsense_is_refused_with_its_place(change: dict[str, Any], place: str) -> None:
    """One line that names the field, whatever is wrong with it."""
    with pytest.raises(BadParameters) as refusal:
        from_builtins({**PAIR, **change})
    assert place in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"{}", b"\xff", b'{"system":"elo"}'])
def test_what_is_no_configuration_is_refused(data: bytes) -> None:
    """Broken JSON raises BadParameters, not the parser's own error."""
    with pytest.raises(BadParameters):
        from_json(data)


def test_the_fingerprint_is_the_same_everywhere() -> None:
    """It depends on what is configured and on nothing else: neither order nor machine."""
    changes_merge_order = dict(reversed(PAIR.items()))
    assert fingerprint(from_builtins(PAIR)) == fingerprint(from_builtins(changes_merge_order))
    assert fingerprint(from_builtins(PAIR)) != fingerprint(from_builtins({**PAIR, "rho": 0.5}))
    assert len(fingerprint(from_builtins(PAIR))) == 16
