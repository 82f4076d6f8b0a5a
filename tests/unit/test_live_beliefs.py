"""Beliefs as they are in Redis now. One that is older than its last published one is refused."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from stream_rater.adapters.memory import Log, Store
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import partition_of, shards_of
from stream_rater.config.files import read_ladders
from stream_rater.config.ladders import Ladders
from stream_rater.contract.errors import LayoutMismatch
from stream_rater.pipeline import ladder_history
from stream_rater.pipeline.ports import UNFINISHED, Position, StoredShard
from stream_rater.places import live_beliefs
from stream_rater.places.live_beliefs import LaddersDiffer, LiveBeliefs, StaleBeliefs, UnratedLadder
from tests.builders.machines import a_belief
from tests.builders.memory_place import MemoryPlace

PARTITIONS, SHARDS = 3, 2
FILE = """
[ladders.l]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }
[[ladders.l.changes]]
from_offset = 100
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80, initial_mu = 500 }
"""


class Rated(MemoryPlace):
    """A place whose ladder `l` is rated."""

    def __init__(self, ladders: Ladders) -> None:
        super().__init__(Log(PARTITIONS, SHARDS), Store())
        self.log.write(ladder_history.encode_histories("noted", {"l": ladders.history("l")}))
        self.next = [7] * PARTITIONS
        """The end of each partition."""
        self.now_s = 0.0
        self.on_read: Callable[[Iterable[int]], None] = lambda _: None
        """Receives the shards that are read."""
        self.known = self.stored = SHARDS
        """The number of shards at the last look, and the number that Redis has."""
        self.ladders, self.live = ladders, LiveBeliefs(ladders, self, lambda: self.now_s)

    @property
    def shards(self) -> int:
        return self.known

    def ends(self) -> Sequence[int]:
        return self.next

    def look(self) -> None:
        self.known = len(self.log.parts)
        self.check_layout()

    def check_layout(self) -> None:
        if self.known != self.stored:
            raise LayoutMismatch(f"the store was laid out with shards = {self.stored}")

    def read(self, players: Mapping[int, PlayerColumn]) -> Mapping[int, StoredShard]:
        self.on_read(players)
        return super().read(players)

    def give(self, name: str, belief: bytes) -> None:
        """Let a player have this belief."""
        shard = int(shards_of([name], len(self.log.parts))[0])
        self.store.beliefs.setdefault(shard, {})["l", name] = belief


@pytest.fixture
def place(tmp_path: Path) -> Rated:
    """One ladder, whose parameters change at offset 100."""
    file = tmp_path / "ladders.toml"
    file.write_text(FILE)
    return Rated(read_ladders(file))


def test_by_the_parameters_of_the_next_round(place: Rated) -> None:
    """Those at the end of its partition, which is asked for again after a while."""
    own = partition_of("l", PARTITIONS)
    place.next = [99 if p == own else 1000 for p in range(PARTITIONS)]
    assert place.live.of("l", ["ann"]).pool.rule.initial_mu == 1500.0
    place.next = [100 if p == own else 0 for p in range(PARTITIONS)]
    assert place.live.of("l", ["ann"]).pool.rule.initial_mu == 1500.0
    place.now_s = live_beliefs.REFRESH_S + 0.1
    assert place.live.of("l", ["ann"]).pool.rule.initial_mu == 500.0


def test_a_new_ladder_is_known_soon(place: Rated) -> None:
    """It is looked for again before it is refused, but not at each question."""
    place.live.of("l", ["ann"])
    place.log.write(ladder_history.encode_histories("noted", {"m": place.ladders.history("l")}))
    with pytest.raises(UnratedLadder, match="'m'"):
        place.live.of("m", ["ann"])
    with pytest.raises(LaddersDiffer, match="'m'"):  # at once where its changes are published
        place.live.of("m", ["ann"], published={"ann": 3})
    place.log.write(ladder_history.encode_histories("noted", {"n": place.ladders.history("l")}))
    place.now_s = live_beliefs.NEW_LADDER_S + 0.01
    with pytest.raises(LaddersDiffer, match="'n'"):
        place.live.of("n", ["ann"])


def test_a_slow_look_is_as_old_as_its_start(place: Rated) -> None:
    """A ladder that began while the list was read is looked for again."""

    def ends() -> Sequence[int]:
        place.now_s = 5.0
        return place.next

    place.ends = ends  # type: ignore[method-assign]
    place.live.of("l", ["ann"])
    place.log.write(ladder_history.encode_histories("noted", {"m": place.ladders.history("l")}))
    with pytest.raises(LaddersDiffer, match="'m'"):
        place.live.of("m", ["ann"])


def test_a_ladder_that_is_not_rated_yet(tmp_path: Path) -> None:
    """One line says so."""
    file = tmp_path / "ladders.toml"
    file.write_text(FILE.replace("[ladders.l]", "[ladders.l]\nfrom_offset = 50"))
    with pytest.raises(LaddersDiffer, match="'l'"):
        Rated(read_ladders(file)).live.of("l", ["ann"])


def test_a_belief_that_is_older_than_what_was_published(place: Rated) -> None:
    """The player would be a newcomer, or have an old rating. A newer belief is used."""
    place.give("ann", a_belief(1600.0, last=10, rounds=3))
    for published in ({}, {"ann": 9}, {"ann": 10}):
        found = place.live.of("l", ["ann", "eve"], published=published).pool
        assert found.find("ann") is not None and found.find("eve") is None
    for published in ({"ann": 11}, {"eve": 0}):
        with pytest.raises(StaleBeliefs, match="try again"):
            place.live.of("l", ["ann", "eve"], published=published)
    place.store.beliefs.clear()
    with pytest.raises(StaleBeliefs, match="'ann'"):
        place.live.of("l", ["ann", "eve"], published={"ann": 10})


def test_a_shard_whose_rebuild_is_unfinished(place: Rated) -> None:
    """Beliefs about its players are refused. Beliefs about players of other shards are shown."""
    shard = int(shards_of(["ann"], SHARDS)[0])
    place.store.positions[shard] = Position(UNFINISHED, UNFINISHED)
    with pytest.raises(StaleBeliefs, match="rebuild"):
        place.live.of("l", ["ann"])
    other = next(n for n in "bcdefghijk" if int(shards_of([n], SHARDS)[0]) != shard)
    place.live.of("l", [other])


def test_shards_that_are_added_while_the_process_runs(place: Rated) -> None:
    """Beliefs are looked for in the new shards; a rebuild in between refuses the question."""
    place.give("ann", a_belief(1600.0, last=10, rounds=3))
    assert place.live.of("l", ["ann"]).pool.find("ann") is not None
    place.log.add_shards(5)
    place.stored = 7
    place.store.beliefs.clear()  # from the old shard
    with pytest.raises(LayoutMismatch, match="7"):
        place.live.of("l", ["ann"])
    place.give("ann", a_belief(1600.0, last=10, rounds=3))
    place.now_s = live_beliefs.REFRESH_S + 0.1
    asked = list[int]()
    place.on_read = asked.extend
    assert place.live.of("l", ["ann"]).pool.find("ann") is not None
    assert asked == shards_of(["ann"], 7).tolist()
