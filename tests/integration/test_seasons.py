"""Past seasons on real servers: the command keeps them, `serve` answers, the page shows them."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from local.servers import Addresses
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.settings import Settings
from stream_rater.contract import season_ended
from stream_rater.contract.record import Record
from stream_rater.contract.season_ended import SeasonRecord, Standing
from stream_rater.operations.ladder_replay import LadderReplay
from stream_rater.places import opened
from tests import real
from tests.browser import tab
from tests.builders.kills import halting
from tests.builders.lines import Bytes, a_message, a_round
from tests.integration.processes import PATIENTLY, WorkerProcess, done, environment_of, workers
from tests.integration.serving import ask, serves
from tests.integration.test_corrections import RANKED, Start, correct, season
from tests.integration.test_page import LOOKS, assert_accessible, chromium
from tests.integration.topics import rated, read_topic, remove_topic
from tests.real import SettingsFactory

__all__ = ["chromium"]

STANDINGS = "season-standings", RANKED, "--wait", PATIENTLY


def records(at: Settings) -> list[SeasonRecord]:
    sent = (Record(0, 0, each.value(), key=each.key()) for each in read_topic(at, topic_of(at)))
    found = [*map(season_ended.decoded, sent)]
    assert None not in found
    return [each for each in found if each is not None]


def in_eu(number: int, *players: str) -> Bytes:
    return a_message(a_round(number, *players, ladder="eu"))


@pytest.mark.slow
def test_checkpoints_and_corrections(settings: SettingsFactory, worker_process: Start) -> None:
    """A replay from a checkpoint without later corrections has the same bits as one from the start.
    After a correction of an old round, the command writes what it wrote before."""
    at = settings(checkpoint_every=10_000)
    worker_process(at)
    rated(at, *season(0, 30))
    done(at, "checkpoint", RANKED)
    rated(at, *season(40, 10))
    end = correct(at, "season", RANKED, "1", "--keep", "0.5", "--sigma", "90")
    first, pieces = replayed(at, end)
    assert pieces > 0
    assert replayed(at, end, checkpoints=False) == (first, 0)
    done(at, *STANDINGS)
    before = records(at)
    correct(at, "void", RANKED, "r7")
    correct(at, "remove", RANKED, "p3")
    done(at, "checkpoint", RANKED)
    assert replayed(at, end)[0] == first
    remove_topic(at, topic_of(at))
    done(at, *STANDINGS)
    assert records(at) == before and len(before) > 5


def replayed(at: Settings, end: int, *, checkpoints: bool = True) -> tuple[dict[str, bytes], int]:
    """The beliefs before an offset, and the number of pieces of checkpoints that were read."""
    pieces = list[int]()
    with opened(at) as place:
        place.check_rated(RANKED, 0.0)
        actions = place.checkpoint_actions(None)

        def counted(ladder: str, name: str, number: int) -> bytes | None:
            pieces.append(number)
            found: bytes | None = actions["read_piece"](ladder, name, number)
            return found

        others: dict[str, Any] = {**actions, "read_piece": counted}
        if not checkpoints:
            others["checkpoints"] = lambda _: {}
        place.checkpoint_actions = lambda failed: others  # type: ignore[method-assign]
        replay = LadderReplay(place, ladders_of_settings(at), place.ladder_log(), RANKED, "")
        pool = replay.run(end).replayed_pool
    rows = pool.played()
    return dict(zip(pool.names.take(rows).texts(), pool.records(rows), strict=True)), len(pieces)


HOSTILE = "<img src=x onerror=alert(1)>/%"
Place = tuple[Settings, WorkerProcess]
NAMES = [*(f"p{i:02}" for i in range(39)), HOSTILE]


@pytest.fixture(scope="module")
def place(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """`serve` with three seasons: kept (by a second run, after a kill), not kept, running."""
    folder = tmp_path_factory.mktemp("seasons")
    with real.a_place(addresses) as at, workers(folder) as work, serves(folder) as begin_serving:
        work(at, forked=True)
        rng = random.Random(3)
        rated(at, *(in_eu(i, *rng.sample(NAMES, 8)) for i in range(60)))
        correct(at, "season", "eu", "1", "--keep", "0.5", "--sigma", "90")
        words = ["season-standings", "eu", "--wait", PATIENTLY]
        sent = "stream_rater.adapters.kafka.producers.Transactions.produce_all"
        with halting(words, environment_of(at), [sent], folder / "standings.log") as halts:
            assert next(halts), "it is killed inside a transaction"
        done(at, *words)
        rated(at, *(in_eu(100 + i, *rng.sample(NAMES, 8)) for i in range(20)))
        correct(at, "season", "eu", "5", "--sigma", "90")
        rated(at, in_eu(300, "p01", "p02"))
        yield at, begin_serving(msgspec.structs.replace(at, serve_rate=0.0))


def test_the_api_answers_from_the_topic(place: Place) -> None:
    """Standings are there once, though a writer was killed. The list has seasons of each state.
    Pages by cursors and around a player are the topic's records. Errors name what is absent."""
    at, api = place
    keys = Counter(e.key() for e in read_topic(at, topic_of(at)))
    assert set(keys.values()) == {1}, keys.most_common(3)
    found = ask(api, "/v1/ladders/eu/seasons").json
    assert [(e["season"], e["standings"]) for e in found["seasons"]] == [
        (0, "kept"), (1, "not-written"), (5, "season-runs")
    ]  # fmt: skip
    first = found["seasons"][0]
    assert (first["started_at"], first["listed"], first["players"]) == (None, 40, 40)
    assert first["ended_at"].startswith("20")
    assert ask(api, "/v1/ladders/na/seasons").json["code"] == "unknown-ladder"

    wanted = [e for e in records(at) if isinstance(e, Standing) and e.season == 0]
    assert len(wanted) == 40
    board, seen, cursor = "/v1/ladders/eu/seasons/0/leaderboard", list[Any](), ""
    while True:
        page = ask(api, f"{board}?limit=7{cursor}").json
        seen += page["rows"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    fields = ("rank", "player", "rating", "percentile", "tier", "rounds")
    assert seen == [{name: getattr(each, name) for name in fields} for each in wanted]
    middle = wanted[20].player
    around = ask(api, f"{board}?around={middle}&limit=5").json
    assert [each["player"] for each in around["rows"]] == [e.player for e in wanted[18:23]]
    assert ask(api, f"{board}?around=nobody").json["code"] == "not-listed"
    assert ask(api, f"{board}?cursor=x").json["code"] == "bad-cursor"
    for number, code in (("1", "unknown-season"), ("9", "unknown-season"), ("x", "bad-request")):
        problem = ask(api, f"/v1/ladders/eu/seasons/{number}/leaderboard").json
        assert (problem["code"], problem["place"]) == (code, "path.season")


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKS, ids=["light", "dark", "phone"])
def test_the_page_shows_a_past_season(
    chromium: Browser, place: Place, look: dict[str, Any]
) -> None:
    """It shows the API's pages, and ids as text. axe finds no fault, and all fits the screen."""
    at, api = place
    with tab(chromium, **look) as opened:
        page = opened.page
        page.goto(f"{api.url}/#/eu")
        rows = page.locator("#past-rows tr")
        expect(rows).to_have_count(25)
        expect(page.locator("#past-caption")).to_have_text("40 players, final standings")
        expect(page.locator("#past-season option")).to_have_count(1)
        expect(page.locator("#past-season option")).to_contain_text("Before the first season")
        page.locator("#past-next").click()
        expect(rows).to_have_count(15)
        expect(page.locator("#past-next")).to_be_disabled()
        page.locator("#past-first").click()
        expect(rows).to_have_count(25)
        wanted = [e.player for e in records(at) if isinstance(e, Standing) and e.season == 0]
        assert rows.locator("td:nth-child(2)").all_inner_texts() == wanted[:25]
        assert_accessible(page)
        assert opened.errors == []


@pytest.mark.slow
def test_a_kept_season_appears(chromium: Browser, place: Place) -> None:
    """It appears in the API and on an open page. (The place's last test: it changes the topic.)"""
    at, api = place
    with tab(chromium) as opened:
        page = opened.page
        page.goto(f"{api.url}/#/eu")
        expect(page.locator("#past-season option")).to_have_count(1)
        done(at, "season-standings", "eu", "1")
        expect(page.locator("#past-season option")).to_have_count(2)
        page.locator("#past-season").select_option("1")
        expect(page.locator("#past-caption")).to_have_text("40 players, final standings")
    found = ask(api, "/v1/ladders/eu/seasons").json
    assert [e["standings"] for e in found["seasons"]] == ["kept", "kept", "season-runs"]
