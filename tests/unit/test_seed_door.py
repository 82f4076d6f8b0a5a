"""The door takes seeds, sends one before a round that asks for it, and refuses invalid events."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_rater.columns.strings import StringColumn
from stream_rater.config.files import read_ladders
from stream_rater.config.ladders import DEFAULT_RATING, Ladder, Ladders, Limits
from stream_rater.contract.record import Appended, NewRecord, NotAppended, Record, header
from stream_rater.contract.seeds import SeededPlayer
from stream_rater.places.live_beliefs import UnratedLadder
from stream_rater.replay.edits import NO_EDITS
from stream_rater.replay.pool import Pool
from stream_rater.replay.what_if import KnownBeliefs, RemovedPlayer
from stream_rater.rounds.correction_records import decode_seed
from stream_rater.rounds.seed_records import Taken, brought
from stream_rater.serve.http.beliefs import beginnings_of
from stream_rater.serve.problems import Refused
from tests.builders.cases import cases
from tests.builders.doors import Client, DoorPlace, a_round, at_door, home
from tests.unit.test_door import AT as ROUNDS
from tests.unit.test_door import VOID

AT = "/v1/ladders/eu/corrections"
STRICT = Ladders(
    ladders={"eu": Ladder(rating=DEFAULT_RATING, limits=Limits(unknown_fields="reject")),
             "no": Ladder(rating=DEFAULT_RATING, limits=Limits(corrections="refused"))},
)  # fmt: skip
WHEN = "2026-05-01T00:00:00Z"
SEED: dict[str, Any] = {
    "event_type": "players-seeded", "round_id": "s1", "at": WHEN,
    "players": [{"player": "ann", "mu": 1620, "sigma": 70}, {"player": "bob", "mu": 1480}],
}  # fmt: skip
RESET: dict[str, Any] = {
    "event_type": "player-reset", "round_id": "x1", "at": WHEN, "player": "ann", "sigma": 200,
}  # fmt: skip


class Beliefs:
    """Gives the players in `known` the rating with which they begin."""

    started_seasons: Any = None

    def __init__(self, *known: str) -> None:
        self.known, self.asked = known, list[Any]()
        self.refusal: Refused | None = None

    async def beginnings(
        self, ladder: str, source: str, more_sigma: float, players: Sequence[str]
    ) -> list[SeededPlayer]:
        self.asked.append((ladder, source, more_sigma, list(players)))
        if self.refusal is not None:
            raise self.refusal
        return [SeededPlayer(each, 1700.0, 90.0) for each in players if each in self.known]


@cases("body", [SEED, RESET])
@at_door(STRICT)
async def test_a_seed_is_written_with_its_kind(
    place: DoorPlace, client: Client, body: dict[str, Any]
) -> None:
    """In the partition of its ladder, as the workers read it."""
    answer = await client.post(AT, body)
    assert (answer.status, answer.json["event_type"]) == (202, body["event_type"])
    (record,) = place.log.records[home("eu")]
    assert header(record.headers, "event-type") == body["event_type"]
    read = Record(home("eu"), 0, record.value, record.headers, received_s=2e9)
    seed = decode_seed(read, STRICT, len(place.log.records))
    assert seed.round_id == body["round_id"] and seed.names.texts()[0] == "ann"


def seeded(**fields: Any) -> dict[str, Any]:
    return {**SEED, "players": [SEED["players"][0], {"player": "bob", "mu": 1480} | fields]}


BAD_ROUNDS: list[tuple[Any, str, str | None]] = [
    (b'{"round_id"', "malformed", None),
    (b"{ }", "bad-id", "body.round_id"),
    (a_round(""), "bad-id", "body.round_id"),
    (a_round(standings=[{"player": "ann", "rank": 1}, {"player": "b", "rank": 0}]), "bad-rank",
     "body.standings[1].rank"),
    (a_round(standings=[{"player": "ann", "rank": 1}, {"player": 3, "rank": 1}]), "bad-id",
     "body.standings[1].player"),
    (a_round(standings=[{"player": "ann", "rank": 1}, {"player": "ann", "rank": 2}]),
     "duplicate-player", "body.standings"),
    (a_round(weight=-1), "bad-weight", "body.weight"),
    (a_round(completed_at="2040-01-01T00:00:00Z"), "bad-time", "body.completed_at"),
    (a_round(completed="x"), "malformed", None),
    (a_round(ladder="asia"), "invalid", "body.ladder"),
    (b"[" * 40, "too-deep", None),
]  # fmt: skip
BAD: list[tuple[Any, str, str | None]] = [
    ({"round_id": "r1"}, "malformed", None),
    ({"event_type": "round-x", "round_id": "r1"}, "malformed", None),
    ({"event_type": "round-voided"}, "malformed", "body.round_id"),
    ({**VOID, "ladder": "no"}, "invalid", "body.ladder"),
    ({"event_type": "player-merged", "player": "a", "into": "a"}, "bad-merge", "body.into"),
    (seeded(player="ann"), "bad-id", "body.players"),
    (seeded(player=""), "bad-id", "body.players[1].player"),
    (seeded(sigma=0), "bad-seed", "body.players[1].sigma"),
    (seeded(sigma=351), "bad-seed", "body.players[1].sigma"),
    (seeded(mu=99999), "bad-seed", "body.players[1].mu"),
    (seeded(mu=None), "malformed", "body.players[1].mu"),
    (seeded(rounds=0), "bad-seed", "body.players[1].rounds"),
    (seeded(ladder="no"), "malformed", "body.players[1]"),
    ({**SEED, "players": [{"player": f"p{i}", "mu": 1500} for i in range(5001)]}, "bad-seed",
     "body.players"),
    ({**SEED, "players": []}, "bad-seed", "body.players"),
    ({**SEED, "ladder": "no"}, "invalid", "body.ladder"),
    ({**SEED, "round_id": ""}, "bad-id", "body.round_id"),
    ({**SEED, "at": "today"}, "bad-time", "body.at"),
    ({**SEED, "at": "2040-01-01T00:00:00Z"}, "bad-time", "body.at"),
    ({**SEED, "batched": True}, "malformed", None),
    ({**RESET, "sigma": 0}, "bad-seed", "body.sigma"),
    ({**RESET, "sigma": 351}, "bad-seed", "body.sigma"),
    ({**RESET, "mu": 99999}, "bad-seed", "body.mu"),
    ({**RESET, "player": ""}, "bad-id", "body.player"),
    (b'{"event_type":"player-reset","round_id":"x","at":"%s","player":"a","sigma":1e999}'
     % WHEN.encode(), "malformed", "body.sigma"),
    (b'{"event_type":"player-reset","round_id":"x","at":"%s","player":"a","sigma":NaN}'
     % WHEN.encode(), "malformed", None),
]  # fmt: skip


@cases("to, body, code, where", [
    *((ROUNDS, *each) for each in BAD_ROUNDS), *((AT, *each) for each in BAD),
])  # fmt: skip
@at_door(STRICT)
async def test_what_is_not_valid_is_not_written(
    place: DoorPlace, client: Client, to: str, body: Any, code: str, where: str | None
) -> None:
    """The answer is 422 with the code of the rejection, and the place where it has one."""
    answer = await client.post(to, body)
    assert (answer.status, answer.code, answer.json.get("place")) == (422, code, where)
    assert place.log.all == []
    assert place.posted("invalid") == 1


@cases("body", [SEED, RESET, VOID])
@at_door(STRICT, Beliefs("ann"))
async def test_a_ladder_that_takes_no_corrections_takes_no_seeds(
    place: DoorPlace, client: Client, body: dict[str, Any]
) -> None:
    """Nor does it take a round with `seed_from`. An unknown kind is answered by the known ones."""
    answer = await client.post("/v1/ladders/asia/corrections", body)
    assert (answer.status, answer.code) == (422, "unknown-ladder")
    answer = await client.post(AT, {**body, "event_type": "players-seeds"})
    assert "players-seeded, player-reset" in answer.json["detail"]
    answer = await client.post("/v1/ladders/no/corrections", body)
    assert (answer.status, answer.code) == (422, "corrections-refused")
    answer = await client.post("/v1/ladders/no/rounds?seed_from=asia", a_round())
    assert (answer.status, answer.code) == (422, "corrections-refused")
    assert answer.json["place"] == "query.seed_from"
    assert place.log.all == []
    assert (await client.post("/v1/ladders/no/rounds", a_round())).status == 202


# --- from another ladder --------------------------------------------------------------------------

ROUND = "/v1/ladders/eu/rounds?seed_from=asia"


def kinds(place: DoorPlace) -> list[str]:
    """The kind of each record, empty for a round."""
    return [header(each.headers, "event-type") for each in place.log.all]


def test_a_seed_is_stored_before_the_round() -> None:
    """In the same partition, of those who begin; a repeated request sends neither again."""
    beliefs = Beliefs("bob", "dee")
    place = DoorPlace(beliefs=beliefs)
    team = [{"team": ["ann", "bob"], "rank": 1}, {"player": "cy", "rank": 2}]

    async def story(client: Client) -> None:
        for _ in range(2):
            answer = await client.post(ROUND + "&seed_sigma=150", a_round(standings=team))
            assert (answer.status, answer.json["offset"]) == (202, 1)
        assert beliefs.asked == [("eu", "asia", 150.0, ["ann", "bob", "cy"])]
        seed, round_ = place.log.records[home("eu")]
        assert kinds(place) == ["players-seeded", ""]
        found = json.loads(seed.value)
        assert [each["player"] for each in found["players"]] == ["bob"]
        assert found["at"] == json.loads(round_.value)["completed_at"]
        assert found["source"] == "ladder asia" and seed.key == b"eu"

    place.play(story)


def test_nobody_begins() -> None:
    """No seed is sent; nor is one without `seed_from`."""
    beliefs = Beliefs()
    place = DoorPlace(beliefs=beliefs)

    async def story(client: Client) -> None:
        assert (await client.post(ROUND, a_round())).status == 202
        assert (await client.post("/v1/ladders/eu/rounds", a_round("r2"))).status == 202
        assert kinds(place) == ["", ""] and len(beliefs.asked) == 1

    place.play(story)


@at_door(beliefs=Beliefs("ann"))
async def test_the_round_waits_for_the_seed(place: DoorPlace, client: Client) -> None:
    """If the seed is not stored, the round is not written, and the answer says so."""
    place.log.broken = NotAppended("unavailable", "away")
    answer = await client.post(ROUND, a_round())
    assert (answer.status, answer.code) == (503, "not-acknowledged")
    place.log.broken, append = None, place.log.append

    async def fail_once(records: Sequence[NewRecord]) -> list[Appended]:
        place.log.append = append  # type: ignore[method-assign]
        return [NotAppended("busy", "full")] * len(records)

    place.log.append = fail_once  # type: ignore[method-assign]
    answer = await client.post(ROUND, a_round())
    assert (answer.status, answer.code) == (503, "busy")
    assert place.log.all == []
    place.log.gate = asyncio.Event()
    sending = asyncio.ensure_future(client.post(ROUND, a_round()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert place.log.all == []
    place.log.gate.set()
    assert (await sending).status == 202
    assert kinds(place) == ["players-seeded", ""]


def test_what_cannot_begin_is_refused() -> None:
    """An invalid round gets no seed; unknown beliefs, and parameters that mean nothing, stop it."""
    beliefs = Beliefs("ann")
    place = DoorPlace(beliefs=beliefs)

    async def story(client: Client) -> None:
        assert (await client.post(ROUND, a_round(weight=-1))).code == "bad-weight"
        assert beliefs.asked == []
        for path in ("?seed_sigma=5", "?seed_from=eu", "?seed_from=asia&seed_sigma=-1"):
            answer = await client.post("/v1/ladders/eu/rounds" + path, a_round())
            assert (answer.status, answer.code) == (400, "bad-request")
        beliefs.refusal = Refused("no-beliefs", "away")
        assert (await client.post(ROUND, a_round())).code == "no-beliefs"
        assert place.log.all == []

    place.play(story)


# --- what is found --------------------------------------------------------------------------------

FILE = """
[ladders.old]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }
[ladders.new.rating]
system = "trueskill"
initial_mu = 25
initial_sigma = 8
beta = 4
sigma_drift = 0.1
draw_margin = 0.1
[ladders.elo.rating]
system = "elo"
learning_rate = 32
floor = 1450
"""


class Live:
    """Beliefs by ladder and player, in place of the store. A player may be removed."""

    def __init__(self, folder: Path) -> None:
        path = folder / "l.toml"
        path.write_text(FILE)
        self.ladders = read_ladders(path)
        self.beliefs: dict[str, dict[str, tuple[float, float, int]]] = {"old": {}, "new": {}}
        self.removed: set[tuple[str, str]] = set()

    def of(self, ladder: str, players: Sequence[str], _: Any, published: Any) -> KnownBeliefs:
        if ladder not in self.beliefs:
            raise UnratedLadder(ladder, [*self.beliefs])
        for player in players:
            if (ladder, player) in self.removed:
                raise RemovedPlayer(player, ladder)
        pool = Pool(self.ladders.ladders[ladder].rating)
        for player, (mu, sigma, rounds) in self.beliefs[ladder].items():
            (row,) = pool.rows(StringColumn.of([player])).tolist()
            header = pool._beliefs.header
            header["mu"][row], header["sigma"][row], header["rounds"][row] = mu, sigma, rounds
        return KnownBeliefs(ladder, pool, NO_EDITS, 0)

    def begin(self, names: tuple[str, str], players: Sequence[str], more: float = 0.0) -> Any:
        live: Any = self
        found = beginnings_of(live, self.ladders, names, ({}, {}), more, players)
        return [msgspec.structs.astuple(each) for each in found]


def test_who_begins_with_what(tmp_path: Path) -> None:
    """Who has a rating there and none here, on this scale, as after one round. Nobody removed."""
    live = Live(tmp_path)
    live.beliefs["old"] = {"ann": (1675.0, 70.0, 9), "bob": (1500.0, 350.0, 1), "cy": (1, 1, 3),
                           "emptied": (1500.0, 350.0, 0)}  # fmt: skip
    live.beliefs["new"] = {"cy": (25.0, 2.0, 4), "bob": (25.0, 8.0, 0)}
    players = ["new", "cy", "bob", "ann", "emptied"]
    assert live.begin(("new", "old"), players) == [("bob", 25.0, 8.0, 1), ("ann", 29.0, 1.6, 1)]
    more = live.begin(("new", "old"), players, more=2.0)
    assert more == [("bob", 25.0, 8.0, 1), ("ann", 29.0, 3.6, 1)]
    live = Live(tmp_path)
    live.beliefs["old"] = dict.fromkeys(("ann", "bob", "cy"), (1600.0, 70.0, 9))
    live.removed = {("old", "ann"), ("new", "bob")}
    found = live.begin(("new", "old"), ["ann", "bob", "cy"])
    assert [each[0] for each in found] == ["cy"]
    live = Live(tmp_path)
    live.beliefs["old"] = {"ann": (1675.0, 70.0, 9), "bob": (1400.0, 70.0, 9)}
    found = live.begin(("elo", "old"), ["bob", "ann"])
    assert found == [("bob", 1450.0, None, 1), ("ann", 1675.0, None, 1)]
    with pytest.raises(Refused) as caught:
        live.begin(("old", "elo"), ["ann"])
    assert caught.value.problem.code == "unknown-ladder"
    assert caught.value.problem.place == "query.seed_from"


def test_the_greatest_sigma(tmp_path: Path) -> None:
    """It is the caller's, or a newcomer's. Cut ones are counted, and absurd numbers limited."""
    rating = DEFAULT_RATING
    given = np.array([1500.0, 1600.0]), np.array([80.0, 200.0])
    found = brought(rating, rating, *given, Taken(150.0, 250.0))
    assert (found[0].tolist(), found[1].tolist(), found[2]) == ([1500, 1600], [230, 250], 1)
    assert brought(rating, rating, *given, Taken(150.0))[1].tolist() == [230, 350]
    live = Live(tmp_path)
    live.beliefs["old"] = {"ann": (1e5, 1e-9, 9)}
    ((_, mu, sigma, _),) = live.begin(("new", "old"), ["ann"])
    assert mu == 25 + 30 * 8 and np.isclose(sigma, 8e-6)
