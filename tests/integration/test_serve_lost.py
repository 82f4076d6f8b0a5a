"""`serve` before it has an index, and when `rating-changed` was replaced: no known player is shown
as a newcomer or is missing. Neither of its two processes outlives the other."""

import signal
from pathlib import Path

from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged
from tests.builders.indexes import an_event
from tests.builders.serves import ServeHere
from tests.integration import serving
from tests.integration.processes import Answering, wait_until
from tests.integration.serving import Serve, ask, publish
from tests.integration.topics import other_producers, remove_topic
from tests.real import SettingsFactory

AT = "/v1/ladders/eu"
COUNT = 2000  # Players with two events each; all first events come first.


def test_while_the_topic_is_first_read(settings: SettingsFactory, serve: ServeHere) -> None:
    """Nothing is shown until the topic was read to its end. Then all is shown."""
    at = settings()
    Admin(at).create_topics()
    for turn, rating in enumerate((1000.0, 1500.0)):
        about = {"ladder": "eu", "rounds": 7 + turn}
        publish(
            at, *(an_event(f"p{i}", turn * COUNT + i, rating + i, **about) for i in range(COUNT))
        )
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
    settings: SettingsFactory, serve: ServeHere, tmp_path: Path
) -> None:
    """The index is made again, also by a running process whose next offset is beyond the end."""
    at = settings(index=str(tmp_path / "index"))
    Admin(at).create_topics()
    publish(at, *rated_as(1500.0, 1600.0, 1700.0))
    api = serve(at)
    assert rating(api) == 1700.0
    api.close()
    renew(at, 1500.0, 1600.0, 1800.0, 1900.0)
    api = serve(at)
    assert rating(api) == 1900.0
    renew(at, 1550.0)
    wait_until(lambda: rating(api) == 1550.0, "it has read the new one")


# --- two processes ---


def test_neither_outlives_the_other(settings: SettingsFactory, serve_process: Serve) -> None:
    """After SIGTERM it ends with 0, as do its index's process and streams. A kill ends both."""
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
