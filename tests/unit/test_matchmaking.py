"""The matchmaking example as typed: its ladder, its teams, and how much form varies."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from examples import matchmaking
from examples.matchmaking import Rating, Ratings, beta_for, beta_of, main
from stream_rater.contract.events import joined, to_json

LADDERS = Path(matchmaking.__file__).parent / "ladders.toml"


@pytest.fixture(autouse=True)
def followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratings of one ladder, without a Kafka."""
    table = {
        "ann": Rating(1700.0, 80.0, 1699.0, 9, provisional=False),
        "bob": Rating(1500.0, 80.0, 1499.0, 2, provisional=True),
        "cy": Rating(1600.0, 80.0, 1599.0, 9, provisional=False),
        "dee": Rating(1400.0, 80.0, 1399.0, 9, provisional=False),
    }

    def made(self: Any, *_: str) -> None:
        self.ladders = {"ranked-eu": table}

    monkeypatch.setattr(Ratings, "__init__", made)
    monkeypatch.setattr(Ratings, "catch_up", lambda _: None)
    monkeypatch.setattr(Ratings, "close", lambda _: None)
    monkeypatch.delenv("STREAM_RATER_LADDERS", raising=False)


def run_example(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["--ladder", "ranked-eu", *words])
    return code, *capsys.readouterr()


def test_a_misspelt_ladder_is_no_newcomer_with_even_chances(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is an error, with names like it."""
    code, out, err = run_example(capsys, "--ladder", "rankd-eu", "--players", "ann,bob")
    assert (code, out) == (2, "")
    assert err == "matchmaking: nobody has played on rankd-eu; ladders like it: ranked-eu\n"


def test_provisional_ratings_are_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    """As the event says."""
    _, out, _ = run_example(capsys, "--players", "ann,bob")
    assert out.startswith("ann (1700 ± 80) beats bob (1500 ± 80, provisional) with probability")


def test_given_teams_are_scored(capsys: pytest.CaptureFixture[str]) -> None:
    """As they are; nobody plays in both."""
    code, out, _ = run_example(capsys, "--teams", "ann,cy", "bob,dee")
    strong = int(out.splitlines()[-1].rpartition(" ")[2].rstrip("%"))
    assert code == 0 and out.startswith("team 1: ann") and strong > 60
    code, _, err = run_example(capsys, "--teams", "ann,cy", "ann,dee")
    assert code == 2 and "nobody plays in both" in err


def test_the_spread_is_the_ladders(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """By its parameters in the ladders file; what varies more is less certain."""
    assert beta_for(LADDERS, "ranked-eu") == pytest.approx(beta_of(0.2, 80.0, 1.0))
    assert beta_for(LADDERS, "royale-eu") == pytest.approx(beta_of(0.1, 70.0))
    assert beta_for(LADDERS, "anything") == pytest.approx(beta_of(0.2, 80.0)), "the template"
    file = tmp_path / "l.toml"
    file.write_text(
        '[ladders.ranked-eu.rating]\nsystem = "elo-mmr"\nbeta = 2000\ngamma = 9\n'
        '[ladders.other.rating]\nsystem = "elo-r"\n'
    )
    chances = [run_example(capsys, "--players", "ann,bob", *words)[1].split()[-1]
               for words in ([], ["--ladders", str(file)], ["--beta", "2000"])]  # fmt: skip
    assert chances[0] > chances[1] == chances[2]
    for ladder, reason in (("other", "system elo-r: give --beta"), ("none", "no ladder none")):
        with pytest.raises(ValueError, match=reason):
            beta_for(file, ladder)


class Message:
    """A message as the client gives it."""

    def __init__(self, key: bytes, value: bytes | None) -> None:
        self._key, self._value = key, value

    def __getattr__(self, name: str) -> Any:
        return lambda: {"_key": self._key, "_value": self._value}.get(f"_{name}")


def test_a_player_who_was_erased_is_forgotten() -> None:
    """By the key of a record without a value, whatever the ids; later events of others count."""
    run_example = {
        "ladder": "l:1", "player": "ü%", "mu": 1.0, "sigma": 1.0, "rating": 1.0, "rounds": 1,
        "provisional": False, "offset": 3,
    }  # fmt: skip
    key, other = joined("l:1", "ü%").encode(), joined("l:1", "bob").encode()
    ratings = Ratings("nowhere")
    ratings._lagging = set()
    ratings._consumer = SimpleNamespace(  # type: ignore[assignment]
        poll=lambda _: Message(key, to_json(run_example)),
        consume=lambda *_: [
            Message(key, None), Message(b"l%3A2:bob", None),
            Message(other, to_json(run_example | {"player": "bob"})),
        ],
    )  # fmt: skip
    assert [each["player"] for each in ratings.poll(0.0)] == ["ü%", "bob"]
    assert set(ratings.table("l:1")) == {"bob"}
