"""`serve` while its index is lost, or before it has one: no veteran is shown as a newcomer, and no
board lacks them."""

from functools import partial
from typing import Any

import msgspec
import redis

from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.index_keys import ROOT, keys_of
from stream_rater.config.settings import Settings
from tests import real
from tests.builders.serves import ServeHere
from tests.contract.test_serve_index import an_event, contents
from tests.integration.processes import Answering, wait_until
from tests.integration.serving import Answered, ask
from tests.integration.topics import Bytes, produce

AT = "/v1/ladders/eu"
COUNT = 2000
"""Players, each of two events: the later ones come behind all the former."""


def publish_many(at: Settings) -> None:
    """Two events of each player, and some players."""
    Admin(at).create_topics()
    for turn, rating in enumerate((1000.0, 1500.0)):
        values = [
            Bytes(msgspec.json.encode(an_event(
                f"p{i}", turn * COUNT + i, rating + i, ladder="eu", rounds=7 + turn
            )), partition=0)
            for i in range(COUNT)
        ]  # fmt: skip
        produce(at, values, Topics.of(at).changed)


def questions(api: Answering) -> dict[str, Answered]:
    """An answer of each kind."""
    sides = [{"players": ["p0"]}, {"players": ["p1"]}]
    return {
        "ladders": ask(api, "/v1/ladders"),
        "ladder": ask(api, AT),
        "player": ask(api, f"{AT}/players/p0"),
        "history": ask(api, f"{AT}/players/p0/history"),
        "lookup": ask(api, f"{AT}/players:lookup", {"players": ["p0", "p1999"]}),
        "leaderboard": ask(api, f"{AT}/leaderboard?limit=2"),
        "around": ask(api, f"{AT}/leaderboard?limit=2&around=p7"),
        "predict": ask(api, f"{AT}/predict", {"sides": sides}),
        "balance": ask(api, f"{AT}/balance", {"players": ["p0", "p1"]}),
        "what-if": ask(api, f"{AT}/what-if", {"sides": sides, "ranks": [1, 2]}),
        "explain": ask(api, f"{AT}/players/p0/explain"),
    }  # fmt: skip


def assert_right_or_refused(found: dict[str, Answered], wanted: dict[str, Answered]) -> None:
    """Each is as it was, or says to try again."""
    for name, each in found.items():
        if each.status == 503:
            assert each.headers["retry-after"]
            if wanted[name].status != 503:
                assert each.json["code"] == "not-ready", (name, each)
        else:
            assert (each.status, each.text) == (wanted[name].status, wanted[name].text), name


def lose(at: Settings, gone: str) -> None:
    """Delete all keys of the index, the root alone, or one key of the ladder."""
    names: dict[str, Any] = {"all": contents(at), "root": [ROOT], **keys_of("eu")._asdict()}
    client: Any = redis.Redis.from_url(at.redis)
    client.delete(*([names[gone]] if isinstance(names[gone], str) else names[gone]))
    client.close()


def test_an_index_that_is_lost_while_it_is_asked(
    settings: real.SettingsFactory, serve: ServeHere
) -> None:
    """Whichever of its keys are lost, from the next answer on it is refused or right, until it is
    as it was. `/readyz` says so when all is lost, at once."""
    at = settings(serve_rate=0.0)
    publish_many(at)
    api = serve(at)
    wanted = questions(api)
    refused = {name: each for name, each in wanted.items() if each.status != 200}
    assert refused.keys() == {"what-if", "explain"}, "there are no beliefs of workers"
    for each in refused.values():
        assert (each.json["code"], each.json["place"]) == ("no-beliefs", None)
        assert "STREAM_RATER_REDIS" in each.json["detail"]
        assert "that of the workers" in each.json["detail"]
    for gone in ("all", "root", *(each for each in keys_of("eu")._fields if each != "dues")):
        before = _troubles(api)
        lose(at, gone)
        ready = ask(api, "/readyz").status
        first = questions(api)
        assert_right_or_refused(first, wanted)
        if gone in ("all", "root"):
            # It may have been made again between, but not without having been lost.
            assert 503 in (ready, first["ladders"].status) or _troubles(api) > before, gone
        wait_until(
            partial(is_made_again, api, wanted, before), f"it is made again after {gone} was lost"
        )
        assert ask(api, "/readyz").status == 200
    assert api.metric("stream_rater_serve_refused_total", code="not-ready") > 0


def is_made_again(api: Answering, wanted: dict[str, Answered], before: float) -> bool:
    """Whether all is as it was, after so many troubles and at least one more."""
    found = questions(api)
    assert_right_or_refused(found, wanted)
    same = all(each.text == wanted[name].text for name, each in found.items())
    return same and _troubles(api) > before


def _troubles(api: Answering) -> float:
    return api.metric("stream_rater_serve_troubles_total")


def test_while_the_topic_is_first_read(settings: real.SettingsFactory, serve: ServeHere) -> None:
    """Nothing of what was read so far is shown. Then all of it is shown."""
    at = settings()
    publish_many(at)
    api = serve(at, ready=False)
    refused = 0

    def is_right() -> bool:
        nonlocal refused
        found = ask(api, f"{AT}/players:lookup", {"players": ["p0", "p1999"]})
        if found.status == 200:
            listed = [(each["rounds"], each["rating"]) for each in found.json["players"]]
            assert listed == [(8, 1500.0), (8, 3499.0)]
            return True
        assert (found.status, found.json["code"]) == (503, "not-ready")
        refused += 1
        return False

    wait_until(is_right, "it is read")
    assert refused or api.metric("stream_rater_serve_caught_up") == 1
