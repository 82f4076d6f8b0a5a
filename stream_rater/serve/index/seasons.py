"""The standings of past seasons in the index in Redis: follows `season-ended`, writes what it has,
and reads it.

The standings of a season never change, so to write one again changes nothing, and nothing is
compared before it is written. A reader sees a season once its summary is there, which is written
after all its standings. The sizes of the keys show whether one of them was lost: then all are
written again.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from stream_rater.adapters.kafka.reader import Reader
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.client import connect, translated_failures
from stream_rater.adapters.redis.index_keys import SEASONS, season_keys, summaries_key
from stream_rater.adapters.redis.login import login_of
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, Trouble
from stream_rater.contract.record import Record
from stream_rater.contract.season_ended import SeasonKept, Standing, record_of
from stream_rater.serve.bodies import SeasonRow
from stream_rater.serve.cursors import AfterRow
from stream_rater.serve.index import scripts
from stream_rater.serve.index.evaluation import Evaluation
from stream_rater.serve.questions import Incomplete
from stream_rater.serve.seasons import StandingsPage

LOOK_S = 10.0
"""The interval at which it looks for the topic, while there is none."""
DENIED_S = 60.0
"""The pause after a denied right."""
CHECK_S = 10.0
"""The interval at which it checks whether keys were lost."""
AT_ONCE = 50
"""The most batches of records in one call."""
FIRST_WAIT_S = 0.2

TOPIC = b"topic"


class IndexedStanding(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A player in the standings of a season. The fields are stored in this order, without names."""

    rank: int
    percentile: float
    tier: str | None
    rating: float
    rounds: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(IndexedStanding).decode
_decode_summary = msgspec.json.Decoder(SeasonKept).decode


class SeasonsLost(Exception):
    """Redis lost a part of the standings."""


class SeasonWriter:
    """Writes the standings to Redis, for one thread. The methods raise StoreTrouble or Denied."""

    def __init__(self, settings: Settings) -> None:
        self._client = connect(settings)
        self._login = login_of(settings)
        self._known: set[tuple[str, int]] = set()
        """The ladders and numbers of the seasons that are written."""

    def begin(self, topic: str, ends: Sequence[int], *, again: bool) -> list[int]:
        """The offset from which each partition must be read. `ends`: the end of each partition.
        `again`: read everything again. If another topic was read, or a longer one, everything is
        dropped."""
        with translated_failures(self._login):
            state = self._client.hgetall(SEASONS)
        found = [0 if again else int(state.get(_position(p), 0)) for p in range(len(ends))]
        beyond = any(at > end for at, end in zip(found, ends, strict=True))
        if state.get(TOPIC, topic.encode()) != topic.encode() or beyond:
            self.drop()
            state, found = {}, [0] * len(ends)
        self._known = {(ladder, season) for ladder, season, _ in _sizes(state)}
        with translated_failures(self._login):
            self._client.hset(SEASONS, TOPIC, topic)
        return found

    def apply(self, records: Sequence[Record], positions: Sequence[int]) -> None:
        """Write the standings and summaries in these records. After that, everything before these
        positions is written."""
        standings: dict[tuple[str, int], dict[str, Standing]] = {}
        summaries: list[SeasonKept] = []
        for record in records:
            found = record_of(record.key or b"", record.value)
            if isinstance(found, Standing):
                standings.setdefault((found.ladder, found.season), {})[found.player] = found
            elif isinstance(found, SeasonKept):
                summaries.append(found)
        with translated_failures(self._login):
            for season, players in standings.items():
                keys = season_keys(*season)
                entries = {name: _encode(_indexed(each)) for name, each in players.items()}
                self._client.hset(keys.players, mapping=entries)
                scores = {name: -each.rating for name, each in players.items()}
                self._client.zadd(keys.ranks, scores)
            for each in summaries:
                self._known.add((each.ladder, each.season))
                self._client.hset(SEASONS, _size_field(each), each.listed)
                summary = msgspec.json.encode(each)
                self._client.hset(summaries_key(each.ladder), str(each.season), summary)
            stored = {_position(p): at for p, at in enumerate(positions)}
            self._client.hset(SEASONS, mapping=stored)

    def check(self) -> None:
        """Raise SeasonsLost if Redis has not got everything any more that was written."""
        with translated_failures(self._login):
            sizes_stored = {each[:2]: each[2] for each in _sizes(self._client.hgetall(SEASONS))}
            if not self._known <= sizes_stored.keys():
                raise SeasonsLost
            for (ladder, season), size in sizes_stored.items():
                keys = season_keys(ladder, season)
                sizes = {self._client.hlen(keys.players), self._client.zcard(keys.ranks)}
                (summary,) = self._client.hmget(summaries_key(ladder), [str(season)])
                if sizes != {size} or summary is None:
                    raise SeasonsLost

    def drop(self) -> None:
        """Delete all standings."""
        with translated_failures(self._login):
            state = self._client.hgetall(SEASONS)
            for ladder, season, _ in _sizes(state):
                self._client.unlink(*season_keys(ladder, season))
                self._client.unlink(summaries_key(ladder))
            self._client.unlink(SEASONS)


def _indexed(each: Standing) -> IndexedStanding:
    return IndexedStanding(each.rank, each.percentile, each.tier, each.rating, each.rounds)


def _position(partition: int) -> bytes:
    return b"partition:%d" % partition


def _size_field(each: SeasonKept) -> bytes:
    return b"season:%d:%s" % (each.season, each.ladder.encode())


def _sizes(state: Any) -> Iterator[tuple[str, int, int]]:
    """Yield the ladder, the number and the number of listed players of each season."""
    for name, size in state.items():
        kind, _, rest = name.partition(b":")
        if kind == b"season":
            season, _, ladder = rest.partition(b":")
            yield ladder.decode(), int(season), int(size)


class SeasonFollower:
    """Keeps the standings in Redis up to date with `season-ended`. The topic need not exist, and
    the right to read it may be missing: then there are no past seasons."""

    def __init__(
        self, settings: Settings, admin: Admin, trouble: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        """`trouble` receives what failed and is tried again."""
        self._settings, self._admin, self._trouble, self._clock = settings, admin, trouble, clock
        self._topic = topic_of(settings)
        self._writer = SeasonWriter(settings)
        self._reader: Reader | None = None
        self._positions: list[int] = []
        self._ends: list[int] = []
        self._again_s = self._checked_s = clock()
        self._again, self._whole = False, False
        self.caught_up = False
        """Whether every record that existed when reading began is written, as far as this process
        may read them."""

    def poll(self) -> None:
        """Write what has arrived. Nothing is raised: what fails is tried again later."""
        if self._clock() < self._again_s:
            return
        try:
            self._poll()
        except Denied as denied:
            self.caught_up = True  # the right is not needed for anything else
            self._pause(f"past seasons: {denied}", DENIED_S)
        except Trouble as trouble:
            self._pause(f"past seasons: {trouble}", LOOK_S)
        except SeasonsLost:
            self._again = True
            self._pause("past seasons: Redis lost some of them: they are written again", 0.0)

    def _pause(self, why: str, pause_s: float) -> None:
        self._trouble(why)
        self.close()
        self._again_s = self._clock() + pause_s

    def _poll(self) -> None:
        if self._reader is None and not self._open():
            return
        reader = self._reader
        assert reader is not None
        for _ in range(AT_ONCE):
            records = reader.gather(0.0 if self._whole else FIRST_WAIT_S)
            before = list(self._positions)
            for each in records:
                self._positions[each.partition] = each.offset + 1
            for partition, end in reader.ends.items():
                self._positions[partition] = max(self._positions[partition], end)
            if self._positions != before:
                self._writer.apply(records, self._positions)
            both = zip(self._positions, self._ends, strict=True)
            self._whole = self._whole or all(at >= end for at, end in both)
            self.caught_up |= self._whole
            if not records:
                break
        if self._whole and self._clock() - self._checked_s >= CHECK_S:
            self._checked_s = self._clock()
            self._writer.check()
            if reader.added(len(self._positions)):
                self.close()  # the next call reads them, too

    def _open(self) -> bool:
        """Begin to read the topic. Returns whether it exists."""
        partitions = self._admin.partitions_if_any(self._topic)
        if partitions is None:
            self.caught_up, self._again_s = True, self._clock() + LOOK_S
            return False
        reader = Reader(self._settings, self._topic)
        try:
            self._ends = [reader.bounds(p)[1] for p in range(partitions)]
            self._positions = self._writer.begin(self._topic, self._ends, again=self._again)
            reader.start_at(dict(enumerate(self._positions)))
        except BaseException:
            reader.close()
            raise
        self._reader, self._again, self._whole = reader, False, False
        return True

    def close(self) -> None:
        """Close the consumer. The next call of `poll` opens another."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


ALL = "return redis.call('HGETALL', KEYS[1])"
SOME = "return redis.call('HMGET', KEYS[1], unpack(ARGV))"


class RedisSeasons:
    """Reads the standings from Redis, for one event loop, as `seasons.SeasonIndex` describes."""

    def __init__(self, run: Evaluation) -> None:
        """`run`: runs the scripts of the index's reader."""
        self._run = run
        self._seen: dict[str, int] = {}
        """By ladder, the most seasons that were found. A season never disappears."""

    async def kept(self, ladder: str) -> Sequence[SeasonKept]:
        """The seasons of a ladder whose standings are kept, in order."""
        found = await self._run(ALL, 1, summaries_key(ladder))
        summaries = [_decode_summary(each) for each in islice(found, 1, None, 2)]
        if len(summaries) < self._seen.get(ladder, 0):
            raise Incomplete("Redis lost past seasons")
        self._seen[ladder] = len(summaries)
        return sorted(summaries, key=lambda each: each.season)

    async def page(self, season: SeasonKept, after: AfterRow | None, limit: int) -> StandingsPage:
        """At most `limit` standings after a place, or the first ones."""
        if after is None:
            found = await self._answer(season, scripts.TOP, limit)
        else:
            given = after.player, repr(-after.rating), limit
            found = await self._answer(season, scripts.AFTER, *given)
        return await self._page(season, found, limit)

    async def around(self, season: SeasonKept, player: str, limit: int) -> StandingsPage | None:
        """At most `limit` standings with the player in the middle; None if the player is not
        listed."""
        found = await self._answer(season, scripts.AROUND, player, limit)
        return None if found is None else await self._page(season, found, limit)

    async def _answer(self, season: SeasonKept, script: str, *given: Any) -> Any:
        """Run a script about a leaderboard on the standings."""
        keys = season_keys(season.ladder, season.season)
        own = summaries_key(season.ladder)  # the scripts have more keys, which these do not use
        shared = keys.players, keys.ranks, own, own, own
        _, answer, _ = await self._run(script, 5, *shared, 0, *given)
        return answer

    async def _page(self, season: SeasonKept, found: Any, limit: int) -> StandingsPage:
        _, flat, _, listed, _ = found
        names = [name.decode() for name in flat[::2]]
        more, names = len(names) > limit, names[:limit]
        keys, entries = season_keys(season.ladder, season.season), []
        if names:
            entries = await self._run(SOME, 1, keys.players, *names)
        if listed != season.listed or None in entries:
            raise Incomplete("Redis lost a part of the season")
        both = zip(names, map(_decode, entries), strict=True)
        return StandingsPage([_row(name, each) for name, each in both], more)


def _row(player: str, each: IndexedStanding) -> SeasonRow:
    return SeasonRow(
        rank=each.rank, player=player, rating=each.rating, percentile=each.percentile,
        tier=each.tier, rounds=each.rounds,
    )  # fmt: skip
