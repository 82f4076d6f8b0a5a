"""`serve` while its index is lost, before it has one, and beside a `rating-changed` that is another
one now: no veteran is shown as a newcomer, and no board lacks them. Neither the process that
answers nor the one that keeps the index outlives the other."""

import signal
from functools import partial
from typing import Any

from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.index_keys import ROOT, TAILS, drop_index, keys_of
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged
from tests.builders.serves import ServeHere
from tests.contract.test_serve_index import an_event, contents
from tests.integration import serving
from tests.integration.processes import Answering, Start, wait_until
from tests.integration.serving import Answered, Serve, ask, publish
from tests.integration.test_serve import EU, rated
from tests.integration.topics import other_producers, remove_topic
from tests.real import SettingsFactory

AT = "/v1/ladders/eu"
COUNT = 2000
"""Players, each of two events: the later ones come behind all the former."""


def publish_many(at: Settings) -> None:
    """Two events of each player, and some players."""
    Admin(at).create_topics()
    for turn, rating in enumerate((1000.0, 1500.0)):
        about = {"ladder": "eu", "rounds": 7 + turn}
        publish(
            at, *(an_event(f"p{i}", turn * COUNT + i, rating + i, **about) for i in range(COUNT))
        )


def questions(api: Answering) -> dict[str, Answered]:
    """An answer of each kind."""
    sides = [{"players": ["p0"]}, {"players": ["p1"]}]
    return {
        "ladders": ask(api, "/v1/ladders"), "ladder": ask(api, AT),
        "player": ask(api, f"{AT}/players/p0"), "history": ask(api, f"{AT}/players/p0/history"),
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
    with connect(at) as client:
        client.delete(*([names[gone]] if isinstance(names[gone], str) else names[gone]))


def test_an_index_is_lost_while_it_is_asked(settings: SettingsFactory, serve: ServeHere) -> None:
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


def test_while_the_topic_is_first_read(settings: SettingsFactory, serve: ServeHere) -> None:
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


# --- Kafka was restored, or has lost its last records ---


def rated_as(*ratings: float) -> list[RatingChanged]:
    """Events of one player."""
    return [an_event("p", i, rating, ladder="eu") for i, rating in enumerate(ratings)]


def renew(at: Settings, *ratings: float) -> None:
    remove_topic(at, Topics.of(at).changed)
    Admin(at).create_topics()
    other_producers()  # in a new topic, kfake refuses the next number of an idempotent one
    publish(at, *rated_as(*ratings))


def rating(api: Answering) -> float | None:
    """The player's rating; None while there is no answer."""
    found = ask(api, f"{AT}/players:lookup", {"players": ["p"]})
    return float(found.json["players"][0]["rating"]) if found.status == 200 else None


def test_a_topic_that_was_replaced(
    settings: SettingsFactory, serve: ServeHere, serve_process: Serve
) -> None:
    """A copy with equal events is as good. Of another one that is longer than before, only a record
    shows it: `serve` ends in one line. Of a shorter one its end shows it. Once the index is
    deleted, it is made from the present topic. A running process finds it, too, since its next
    offset is beyond the new end."""
    at = settings()
    Admin(at).create_topics()
    publish(at, *rated_as(1500.0, 1600.0, 1700.0))
    api = serve(at)
    wait_until(lambda: TAILS.encode() in contents(at), "a checkpoint has stored the last record")
    assert rating(api) == 1700.0
    api.close()

    renew(at, 1500.0, 1600.0, 1700.0)
    api = serve(at)
    assert rating(api) == 1700.0
    api.close()

    renew(at, 1500.0, 1600.0, 1800.0, 1900.0)
    process = serve_process(at, ready=False)
    assert process.wait() == 1, process.log()
    said = process.log().splitlines()[-1]
    assert said.startswith("stream-rater: ")
    assert "partition 0 has another record at offset 2: delete the keys that begin with" in said

    renew(at, 1500.0, 1600.0)
    said = serve(at, ready=False).wait()
    assert "partition 0 was read to 3, and it ends at 2: delete the keys that begin with" in said

    drop_index(at)
    api = serve(at)
    assert rating(api) == 1600.0
    renew(at, 1550.0)
    assert "partition 0 was read to 2, and it ends at" in api.wait()


def test_a_record_that_is_not_there(
    settings: SettingsFactory, worker_process: Start, serve: ServeHere
) -> None:
    """Compaction may have removed it. Here the end of a transaction has its offset."""
    at = settings()
    rated(at, worker_process, 10)
    ends = Admin(at).ends(Topics.of(at).changed, 4)
    with connect(at) as client:
        client.hset(TAILS, mapping={p: f"{end - 1} 1" for p, end in enumerate(ends) if end})
    assert ask(serve(at), f"/v1/ladders/{EU}/players/ann").status == 200


# --- two processes ---


def test_neither_outlives_the_other(settings: SettingsFactory, serve_process: Serve) -> None:
    """Asked to end, it ends with 0, and with it the index's process and the stream of a client that
    follows. Killed, it leaves no index's process. (What happens if that is killed: see
    `test_standalone.test_its_life`.)"""
    at = settings()
    serving.publish_few(at)
    api = serve_process(at)
    index = serving.index_process(api)
    with serving.followed(api, "/v1/ladders/eu/changes") as events:
        next(events)
        api.terminate()
        assert list(events) == []
    assert api.wait() == 0
    assert api.events()[-1]["event"] == "stopped"
    wait_until(lambda: not serving.is_index(index), "it has ended")

    api = serve_process(at)
    index = serving.index_process(api)
    api.kill()
    assert api.wait() == -signal.SIGKILL
    wait_until(lambda: not serving.is_index(index), "it has ended")
