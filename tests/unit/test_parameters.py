"""Rating configurations: what they mean, what is refused with its place, and the systems that they
make: laws, displayed numbers, waves, book-keeping, and what a ladder warns of."""

import math
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stream_rater
from stream_rater.config.ladders import Change, Ladder, Ladders, any_ladder
from stream_rater.operations.rate import rate
from stream_rater.rating import stages
from stream_rater.rating.model import NEVER, newcomers
from stream_rater.rating.parameters import (
    DEFAULT_KEPT,
    BadParameters,
    Codeforces,
    EloMMR,
    Glicko,
    MinusSigma,
    Topcoder,
    fingerprint,
    from_builtins,
    from_json,
)
from stream_rater.rating.stages import RatingRule, rule_of
from stream_rater.runtime.cautions import cautions_of
from tests.rounds import as_json

PAIR = {"system": "elo-mmr", "weight_limit": 0.23, "sigma_limit": 54}


@given(st.floats(1e-3, 1e3), st.floats(1e-2, 1e3), st.floats(1.0, 1e3), st.floats(1e-3, 1e6))
def test_both_forms_are_the_same_pair(w: float, s: float, beta: float, gamma: float) -> None:
    """(beta, gamma) = (sqrt(1 + 1/w) s, sqrt(w) s) gives back (weight_limit, sigma_limit); and
    gamma^2 = w s^2 and beta^2 = (1 + 1/w) s^2 hold for any pair, gamma far above beta, too."""
    found = EloMMR(beta=math.sqrt(1.0 + 1.0 / w) * s, gamma=math.sqrt(w) * s)
    # relative: squares and roots; where w is large, 1 + 1/w forgets digits of 1/w
    assert (w, s) == pytest.approx(found.limits, rel=1e-14 * (1.0 + w))
    w, s = EloMMR(beta=beta, gamma=gamma).limits
    pair = math.sqrt(1.0 + 1.0 / w) * s, math.sqrt(w) * s
    assert pair == pytest.approx((beta, gamma), rel=1e-13)


def test_defaults() -> None:
    """What is left out has the defaults of the contract; history is the service's K. (weight_limit,
    sigma_limit) is taken as it stands."""
    found = from_json(msgspec.json.encode(PAIR))
    assert isinstance(found, EloMMR) and found.limits == (0.23, 54.0)
    assert found == EloMMR(weight_limit=0.23, sigma_limit=54.0)
    assert (found.initial_mu, found.initial_sigma, found.provisional_rounds) == (1500, 350, 5)
    assert (found.ties, found.drift_per_day, found.newcomer_weights) == ("full", 0.0, ())
    assert (found.history, found.kept, found.skip_all_tied) == (20, DEFAULT_KEPT, False)


def test_json_and_tables_agree() -> None:
    """The same configuration in JSON and as a TOML table is the same configuration, and so is its
    fingerprint: it depends on what is configured and on nothing else, neither order nor machine."""
    table = {
        **PAIR, "rho": "inf", "ties": "split", "history": "full", "newcomer_weights": [2, 1.5],
        "display": {"minus_sigma": 3}, "floor": 0, "drift_per_day": 4,
    }  # fmt: skip
    found = from_builtins(table)
    assert found == from_json(msgspec.json.encode(table))
    assert isinstance(found, EloMMR)
    assert (found.momentum, found.kept) == (math.inf, 0)
    assert found.display == MinusSigma(minus_sigma=3.0)
    prints = [fingerprint(from_builtins(each)) for each in (PAIR, dict(reversed(PAIR.items())))]
    assert prints[0] == prints[1] != fingerprint(from_builtins({**PAIR, "rho": 0.5}))
    assert len(prints[0]) == 16


def test_nonsense_is_refused_with_its_place() -> None:
    """One line that names the field, whatever is wrong with it. Broken JSON raises BadParameters,
    not the parser's own error."""
    values: dict[str, list[Any]] = {
        "sigma_limit": [0, -1, math.nan, math.inf, 1e-300], "weight_limit": [0, "much"],
        "initial_sigma": [0], "initial_mu": [math.nan, 1e10], "rho": [-1, "infinite", math.nan],
        "ties": ["half"], "drift_per_day": [-1], "history": [0, 65, "some"], "display": ["sigma"],
        "provisional_rounds": [-1], "floor": [math.inf],
    }  # fmt: skip
    nonsense: list[tuple[dict[str, Any], str]] = [
        *(({name: each}, f"$.{name}") for name, some in values.items() for each in some),
        ({"newcomer_weights": [1, 0]}, "$.newcomer_weights["),
        ({"newcomer_weights": [math.nan]}, "$.newcomer_weights["),
        ({"display": {"plus_sigma": 1}}, "plus_sigma"),
        ({"system": "elo-mmm"}, "elo-mmm"), ({"sigma_limits": 1}, "sigma_limits"),
        ({"beta": 200}, "either"), ({"beta": 200, "gamma": 30}, "either"),
        ({"weight_limit": None}, "either"), ({"weight_limit": None, "beta": 200}, "either"),
    ]  # fmt: skip
    for change, place in nonsense:
        with pytest.raises(BadParameters) as refusal:
            from_builtins({**PAIR, **change})
        assert place in str(refusal.value) and "\n" not in str(refusal.value), change
    for data in (b"", b"{", b"[]", b"null", b"{}", b"\xff", b'{"system":"elo"}'):
        with pytest.raises(BadParameters):
            from_json(data)


# --- what a system is -----------------------------------------------------------------------------

CONFIG = EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=1.0)


def config(**fields: Any) -> EloMMR:
    return msgspec.structs.replace(CONFIG, **fields)


def test_the_displayed_rating() -> None:
    """mu - 2 (sigma - sigma_limit) unless the ladder says otherwise, and never below its floor. A
    ladder given by beta and gamma has a sigma_limit, too."""
    cases: list[tuple[dict[str, Any], float]] = [
        ({}, 1560.0), ({"display": "mu"}, 1600.0),
        ({"display": MinusSigma(minus_sigma=3.0)}, 1600.0 - 3.0 * 100.0),
        ({"floor": 1590.0}, 1590.0), ({"floor": 1500.0}, 1560.0),
    ]  # fmt: skip
    for fields, expected in cases:
        rule = rule_of(config(**fields))
        assert expected == rule.rating(1600.0, 100.0), fields
        found = rule.rating(np.full(2, 1600.0), np.full(2, 100.0)).tolist()
        assert [expected] * 2 == found, fields
    by_spread = EloMMR(beta=math.sqrt(1.0 + 1.0 / 0.2) * 80.0, gamma=math.sqrt(0.2) * 80.0)
    assert rule_of(by_spread).rating(1600.0, 100.0) == pytest.approx(1560.0, abs=1e-9)


def test_a_law_travels() -> None:
    """Through JSON and MessagePack a law stays what it was, infinite momentum included."""
    rhos: list[Any] = [0.0, 0.04, 1.0, "inf"]
    for rho in rhos:
        conf = config(rho=rho, history="full", floor=100.0)
        rule = rule_of(conf)
        assert rule.momentum == (math.inf if rho == "inf" else rho)
        assert rule == msgspec.json.decode(msgspec.json.encode(rule), type=RatingRule)
        assert rule == msgspec.msgpack.decode(msgspec.msgpack.encode(rule), type=RatingRule)
        assert (rule.kept, rule.floor, rule.provisional_rounds) == (0, 100.0, 5)
        assert rule.config == fingerprint(conf)


def test_rows_and_their_books() -> None:
    """Rows of several ladders in one call use their own rho and K. A round counts, its offset is
    the last, and the stored time never goes back."""
    rules = [rule_of(config(rho="inf", history=3)), rule_of(config(rho=0.0, history=2))]
    beliefs, rows = newcomers(2, 8, 1500.0, 350.0, coded=True), np.arange(2)
    for p in (1700.0, 1300.0, 1900.0):
        stages.update(beliefs, rows, np.array([[p, 32_000.0, 1_600.0]] * 2), rules, rows)
    assert beliefs.header["count"].tolist() == [1, 2]
    beliefs, row = newcomers(2, 1, 1500.0, 350.0), np.zeros(1, np.int64)
    seen = []
    for offset, time in ((3, -50), (4, 100), (9, 70)):
        stages.record_round(beliefs, row, row + offset, row + time)
        head = beliefs.header[0]
        seen.append([int(head[n]) for n in ("rounds", "last", "time", "previous_time")])
    assert seen == [[1, 3, -50, 0], [2, 4, 100, -50], [3, 9, 100, 100]]
    assert (beliefs.header["rounds"][1], beliefs.header["last"][1]) == (0, NEVER)


# --- what its system does to ratings in the long run ----------------------------------------------


def test_a_ladder_warns_where_it_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once. In Python it is a warning for the line that makes the ladder; at the start of `rate`, a
    line on standard error."""
    with pytest.warns(UserWarning, match="system topcoder: .* ratings no longer move") as caught:
        stream_rater.Ladder("topcoder")
    assert [each.filename for each in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream_rater.Ladder()
        stream_rater.Ladder("two-moment")
    file = tmp_path / "rounds.jsonl"
    file.write_bytes(as_json() + b"\n")
    rate(file, any_ladder(Topcoder()), tmp_path / "out.jsonl", None, records=False)
    assert capsys.readouterr().err.startswith("warning: ladder '*': system topcoder: ")


def test_what_a_file_of_ladders_warns_of() -> None:
    """Each text once, with the first ladder that it holds for; also of what is to hold later."""
    still = Glicko(beta=200.0, sigma_drift=0.0)
    ladders = Ladders(
        ladders={
            "a": Ladder(rating=Topcoder()),
            "b": Ladder(rating=Topcoder(weight_limit=0.3)),
            "c": Ladder(
                rating=Glicko(beta=200.0, sigma_drift=35.0),
                changes=(Change(from_offset=9, rating=still),),
            ),
            "d": Ladder(rating=EloMMR(weight_limit=0.2, sigma_limit=80.0)),
            "e": Ladder(rating=Codeforces(beta=200.0, weight=0.2)),
        }
    )
    found = cautions_of(ladders)
    assert [each[:10] for each in found] == ["ladder 'a'", "ladder 'c'", "ladder 'e'"]
    assert "by 0.85 points a player" in found[2]
