"""Beliefs as they are in Redis now, with the parameters of the next round. A belief that is older
than the last published one is refused."""

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from stream_rater.adapters import live_beliefs
from stream_rater.adapters.live_beliefs import LaddersDiffer, LiveBeliefs, StaleBeliefs
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import partition_of, shards_of
from stream_rater.config.files import read_ladders
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LayoutMismatch
from stream_rater.pipeline.ports import UNFINISHED, Position, StoredShard
from stream_rater.rating import record
from stream_rater.rating.model import newcomers

PARTITIONS, SHARDS = 3, 2
FILE = """
[ladders.l.rating]
system = "elo-mmr"
weight_limit = 0.2
sigma_limit = 80
[[ladders.l.changes]]
from_offset = 100
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80, initial_mu = 500 }
"""


def a_belief(last: int) -> bytes:
    """The belief of somebody whom this offset changed last."""
    beliefs = newcomers(1, 1, 1600.0, 80.0, coded=True)
    beliefs.header["last"], beliefs.header["rounds"] = last, 3
    return record.encode(beliefs)[0]


class Place:
    """Kafka and Redis, as far as they are asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ladders: Ladders) -> None:
        self.ends = [7] * PARTITIONS
        self.applied = [5] * SHARDS
        self.beliefs: dict[str, bytes] = {}
        self.now_s = 0.0
        self.on_read: Callable[[Iterable[int]], None] = lambda _: None
        """Receives the shards that are read."""
        topics = SimpleNamespace(changed="changed", rounds="rounds", ladder_events="notes")
        self.counts = {"changed": SHARDS, "rounds": PARTITIONS, "notes": 1}
        self.stored_shards = [SHARDS]
        """The number of shards by the layout, at each look at it; the last one stays."""
        admin = SimpleNamespace(
            topics=topics, partitions_of=lambda *of: [self.counts[each] for each in of],
            ends=lambda topic, count: self.ends if (topic, count) == ("rounds", 3) else None,
        )  # fmt: skip
        ladder_log = SimpleNamespace(ladders=("l",), corrections={})
        events = SimpleNamespace(read=lambda: ladder_log, close=lambda: None)
        store = SimpleNamespace(
            layout=SimpleNamespace(check_stored=self._check_stored), read=self._read
        )
        monkeypatch.setattr(live_beliefs, "Admin", lambda *_, **__: admin)
        monkeypatch.setattr(live_beliefs, "RedisStore", lambda _: store)
        monkeypatch.setattr(live_beliefs, "LadderEvents", lambda *_: events)
        monkeypatch.setattr(live_beliefs, "disagreement", lambda *_, **__: "")
        source = live_beliefs.ServiceBeliefs(Settings())
        self.live = LiveBeliefs(Settings(), ladders, source, lambda: self.now_s)

    def _check_stored(self, layout: Mapping[str, str]) -> None:
        now, *later = self.stored_shards
        self.stored_shards = later or [now]
        if layout["shards"] != str(now):
            raise LayoutMismatch(f"the store was laid out with shards = {now}")

    def _read(self, players: Mapping[int, PlayerColumn]) -> dict[int, StoredShard]:
        self.on_read(players)
        return {
            shard: StoredShard(
                Position(self.applied[shard]), [self.beliefs.get(name) for _, name in wanted]
            )
            for shard, wanted in players.items()
        }


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Place:
    """One ladder, whose parameters change at offset 100."""
    file = tmp_path / "ladders.toml"
    file.write_text(FILE)
    return Place(monkeypatch, read_ladders(file))


def test_by_the_parameters_of_the_next_round(place: Place) -> None:
    """Those at the present end of the ladder's partition: a change that lies ahead has not begun,
    one at the end has. The end is asked for again after a while."""
    own = partition_of("l", PARTITIONS)
    place.ends = [99 if p == own else 1000 for p in range(PARTITIONS)]
    assert place.live.of("l", ["ann"]).pool.rule.initial_mu == 1500.0
    place.ends = [100 if p == own else 0 for p in range(PARTITIONS)]
    assert place.live.of("l", ["ann"]).pool.rule.initial_mu == 1500.0
    place.now_s = live_beliefs.REFRESH_S + 0.1
    assert place.live.of("l", ["ann"]).pool.rule.initial_mu == 500.0


def test_a_ladder_that_is_not_rated_yet(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """One line says so."""
    file = tmp_path / "ladders.toml"
    file.write_text(
        FILE.replace("[ladders.l.rating]", "[ladders.l]\nfrom_offset = 50\n[ladders.l.rating]")
    )
    with pytest.raises(LaddersDiffer, match="'l'"):
        Place(monkeypatch, read_ladders(file)).live.of("l", ["ann"])


def test_a_belief_that_is_older_than_what_was_published(place: Place) -> None:
    """A belief was lost, or Redis went back: it is refused, because the player would count as a
    newcomer or have an old rating. A newer belief is used as it is, and so is the belief of a
    player without published changes."""
    place.beliefs["ann"] = a_belief(10)
    for published in ({}, {"ann": 9}, {"ann": 10}):
        found = place.live.of("l", ["ann", "eve"], published=published).pool
        assert found.find("ann") is not None and found.find("eve") is None
    for published in ({"ann": 11}, {"eve": 0}):
        with pytest.raises(StaleBeliefs, match="try again"):
            place.live.of("l", ["ann", "eve"], published=published)
    del place.beliefs["ann"]
    with pytest.raises(StaleBeliefs, match="'ann'"):
        place.live.of("l", ["ann", "eve"], published={"ann": 10})


def test_a_shard_whose_rebuild_is_unfinished(place: Place) -> None:
    """Beliefs about its players are refused. Beliefs about players of other shards are shown."""
    shard = int(shards_of(["ann"], SHARDS)[0])
    place.applied[shard] = UNFINISHED
    with pytest.raises(StaleBeliefs, match="rebuild"):
        place.live.of("l", ["ann"])
    other = next(n for n in "bcdefghijk" if int(shards_of([n], SHARDS)[0]) != shard)
    place.live.of("l", [other])


def test_shards_that_are_added_while_the_process_runs(place: Place) -> None:
    """Beliefs are looked for in the new shards. A rebuild that ends between the count and the read
    makes no newcomer of a player: the question is refused."""
    place.beliefs["ann"] = a_belief(10)
    assert place.live.of("l", ["ann"]).pool.find("ann") is not None
    place.counts["changed"], place.applied = 7, [5] * 7
    place.stored_shards = [7]
    place.beliefs.clear()  # from the old shard
    with pytest.raises(LayoutMismatch, match="7"):
        place.live.of("l", ["ann"])
    place.beliefs["ann"] = a_belief(10)
    place.now_s = live_beliefs.REFRESH_S + 0.1
    asked = list[int]()
    place.on_read = asked.extend
    assert place.live.of("l", ["ann"]).pool.find("ann") is not None
    assert asked == shards_of(["ann"], 7).tolist()
