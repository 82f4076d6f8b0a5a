"""`stream-rater demo --embedded`: what it says of the cheater is so."""

import msgspec
import pytest

from stream_rater.config.errors import Failed
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.operations import demo
from stream_rater.runtime.engine import EmbeddedEngine

ROUNDS = 40
CHEATER = demo.player_id(demo.CHEATER)


@pytest.fixture
def season() -> demo.DemoSeason:
    season = demo.DemoSeason()
    for number in range(ROUNDS):
        season.play(number)
    return season


def honest(season: demo.DemoSeason) -> dict[str, tuple[float, float, int]]:
    """Who has what mu, sigma and rounds after the same rounds without the cheater."""
    engine, found = EmbeddedEngine(), {}
    for record in season.engine.log.rounds[0]:
        finished = msgspec.json.decode(record.value or b"")
        if "standings" in finished:
            finished["standings"] = [
                each for each in finished["standings"] if each["player"] != CHEATER
            ]
            engine.log.submit(0, msgspec.json.encode(finished), received_s=2e9)
    engine.settle()
    for shard in engine.log.changed:
        for each in shard:
            event = rating_changed_from_json(each.value)
            found[event.player] = event.mu, event.sigma, event.rounds
    return found


def test_ratings_become_those_of_a_season_without_the_cheater(season: demo.DemoSeason) -> None:
    """Events and store have them. In the table the cheater comes first, without a rating."""
    before = {who: each.rating for who, each in season.newest.items()}
    moves = season.remove(CHEATER)
    published = {who: (each.mu, each.sigma, each.rounds) for who, each in season.newest.items()}
    assert published.pop(CHEATER)[2] == 0
    expected, moved = honest(season), {each.player for each in moves} - {CHEATER}
    assert [published[who] for who in moved] == [expected[who] for who in moved]
    assert len(moved) > ROUNDS // 2 and published.keys() == expected.keys()
    assert season.verify() == len(published) + 1
    cheater, *others = moves
    assert (cheater.player, cheater.rating_after, cheater.rounds_after) == (CHEATER, None, 0)
    assert [each.rating_before for each in others] == [before[each.player] for each in others]
    differences = [abs(each.difference or 0.0) for each in others]
    assert differences == sorted(differences, reverse=True)
    assert all((each.difference or 0.0) > 0.0 for each in others)


def test_a_rating_that_differs_is_reported(season: demo.DemoSeason) -> None:
    """The demo's last sentence is said of no other store."""
    season.remove(CHEATER)
    beliefs = next(each for each in season.engine.store.beliefs.values() if len(each) > 1)
    one, other, *_ = beliefs
    beliefs[one] = beliefs[other]
    with pytest.raises(Failed, match="differ from the replay"):
        season.verify()
