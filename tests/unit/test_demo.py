"""`stream-rater demo`: what it says of the cheater is so, on a standalone process in a thread."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stream_rater import Ladder
from stream_rater.cli.demo import FEWEST
from stream_rater.config.settings import Settings
from stream_rater.operations import demo
from stream_rater.runtime.child import Rater
from tests.builders.commands import as_file
from tests.builders.serves import serves_here

ROUNDS = FEWEST


@pytest.fixture
def season(tmp_path: Path) -> Iterator[demo.Season]:
    ladders, data = tmp_path / "ladders.toml", tmp_path / "ratings.db"
    ladders.write_text(demo.ladders_file())
    settings = Settings(serve="127.0.0.1:0", serve_rate=0.0, ladders=str(ladders))
    with serves_here() as start:
        season = demo.Season(Rater(start(settings, data=data).url, data))
        season.play(ROUNDS)
        yield season


def test_ratings_become_those_of_a_season_without_the_cheater(
    season: demo.Season, tmp_path: Path
) -> None:
    """Who cheats has the most victories, comes first in the table, and has no rating then."""
    player, wins, rounds, most = season.suspect()
    assert player == demo.CHEATER and rounds >= wins > most
    cheater, *others = season.remove(player)
    assert (cheater.player, cheater.rating_after, cheater.rounds_after) == (player, None, 0)
    honest, lines = Ladder(), []
    for each in season.rounds:
        if each["ladder"] == demo.CHEATED:
            left = [entry for entry in each["standings"] if entry["player"] != player]
            lines.append({**each, "standings": left})
    honest.rate_file(as_file(tmp_path / "honest.jsonl", lines))
    expected = {each.player: honest[each.player] for each in others}
    assert {each.player: each.rating_after for each in others} == {
        name: each.rating for name, each in expected.items()
    }
    gains = [each.difference or 0.0 for each in others]
    assert sum(gain > 0.0 for gain in gains) > 50
    assert gains == sorted(gains, key=lambda gain: -abs(gain))


def test_it_goes_on(season: demo.Season, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rounds that are taken, without the player who was removed, until Ctrl-C."""
    season.remove(demo.CHEATER)
    pauses, made = iter([None] * 100), list[Any]()
    monkeypatch.setattr(demo, "time", SimpleNamespace(sleep=lambda _: next(pauses)))
    rater, notes = season.rater, SimpleNamespace(ask=lambda *asked: made.append(asked))
    monkeypatch.setattr(season, "rater", notes)
    with pytest.raises(StopIteration):
        season.go_on()
    assert len(made) == 100 and repr(demo.CHEATER) not in str(made)
    (results,) = (rater.ask(*asked)["results"] for asked in made[-1:])
    assert [each["status"] for each in results] == [202]
