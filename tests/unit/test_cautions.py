"""A ladder warns once, where it is made, of what its system does to ratings in the long run."""

import warnings
from pathlib import Path

import pytest

import stream_rater
from stream_rater.config.ladders import Change, Ladder, Ladders, any_ladder
from stream_rater.operations.rate import rate
from stream_rater.rating.parameters import Codeforces, EloMMR, Glicko, Topcoder
from stream_rater.runtime.cautions import cautions_of
from tests.rounds import as_json


def test_in_python() -> None:
    """It is a warning for the line that makes the ladder."""
    with pytest.warns(UserWarning, match="system topcoder: .* ratings no longer move") as caught:
        stream_rater.Ladder("topcoder")
    assert [each.filename for each in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream_rater.Ladder()
        stream_rater.Ladder("two-moment")


def test_of_a_file_of_ladders() -> None:
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


def test_at_the_start_of_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, a line."""
    file = tmp_path / "rounds.jsonl"
    file.write_bytes(as_json() + b"\n")
    rate(file, any_ladder(Topcoder()), tmp_path / "out.jsonl", None, records=False)
    assert capsys.readouterr().err.startswith("warning: ladder '*': system topcoder: ")
