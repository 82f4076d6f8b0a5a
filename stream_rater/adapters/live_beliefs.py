"""What Redis holds of some players of a ladder, as a pool of them alone."""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stream_rater.adapters.kafka.ladder_notes import LadderNotes
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.adapters.same_ladders import disagreement
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import partition_of, shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladder, Ladders
from stream_rater.config.settings import Settings
from stream_rater.pipeline.corrections.edits_in_force import EditsOfLadders
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.ports import UNFINISHED
from stream_rater.rating import record
from stream_rater.replay.pool import Pool
from stream_rater.replay.what_if import KnownBeliefs, playing_as

NOTED_S = 1.0
"""For so long the notes of the ladders are not read again, nor where the partitions end."""

NOTHING_TOLD: Mapping[str, int] = {}


class UnratedLadder(Exception):
    """No round of the ladder was rated."""

    def __init__(self, ladder: str, rated: Sequence[str]) -> None:
        super().__init__(f"no round of ladder {ladder!r} was rated")
        self.ladder, self.rated = ladder, rated


class OtherLadders(Exception):
    """The ladders file is not that of the workers. The text says where, and the cure."""


class BeliefsBehind(Exception):
    """Redis has not the beliefs that were told of: it lost them, or they are being made again."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: Redis lost beliefs, or workers are still catching up: try again")


class LiveBeliefs:
    """Reads the beliefs that the workers hold. It is for one thread.

    Its methods raise LayoutMismatch where Redis is not that of the workers, TopicMismatch,
    LogTrouble, StoreTrouble or Denied.
    """

    def __init__(
        self, settings: Settings, ladders: Ladders, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Makes no request, unless Redis is a cluster."""
        self._settings, self._ladders, self._clock = settings, ladders, clock
        self._admin, self._store = Admin(settings), RedisStore(settings)
        self._notes = LadderNotes(settings, self._admin)
        self._noted, self._until_s = LadderLog(), -1.0
        self._edits = EditsOfLadders()
        self._ends: list[int] = []
        """Where the partitions of `round-completed` end: the next round comes behind."""
        self._shards = self._partitions = 0

    def of(
        self, ladder: str, players: Sequence[str], time_s: int | None = None,
        told: Mapping[str, int] = NOTHING_TOLD,
    ) -> KnownBeliefs:  # fmt: skip
        """What is believed of these players now, for a round at this time (now, without it), by the
        parameters that the next round will have. Who has not played is a newcomer.

        `told`: of some players, the offset of what is known to have changed them last.

        Raises UnratedLadder, OtherLadders, BeliefsBehind, or RemovedPlayer for a player who cannot
        play a round to come.
        """
        self._prepare()
        if ladder not in self._noted.ladders:
            raise UnratedLadder(ladder, self._noted.ladders)
        if why := disagreement(self._settings, self._ladders, self._noted, only=ladder):
            raise OtherLadders(why)
        terms = self._ladders.find(ladder, self._ends[partition_of(ladder, len(self._ends))])
        if terms is None:
            raise OtherLadders(
                f"the ladders file does not rate {ladder!r} yet: `from_offset` lies ahead"
            )
        edits = self._edits.of(ladder, self._noted.corrections).last
        nobody = Pool(Ladder(rating=terms.rating), edits.started)
        known = KnownBeliefs(ladder, nobody, edits, int(time.time()) if time_s is None else time_s)
        names = sorted(set(playing_as(players, known).values()))
        held = self._records(ladder, names)
        found = [name for name in names if held[name] is not None]
        beliefs = record.decode([held[name] for name in found], terms.rating.kept + 1, 0.0, 1.0)
        pool = Pool.of(terms.rating, edits.started, StringColumn.of(found), beliefs)
        last = dict(zip(found, beliefs.header["last"].tolist(), strict=True))
        for name in names:
            if last.get(name, -1) < told.get(name, -1):
                raise BeliefsBehind(f"the belief about {name!r} is older than what was told")
        return known._replace(pool=pool)

    def _prepare(self) -> None:
        """Check that Redis is that of the workers, once; read what is new of the notes."""
        if not self._shards:
            topics = self._admin.topics
            (shards,) = self._admin.partitions_of(topics.changed)  # as many as parts are cut into
            (self._partitions,) = self._admin.partitions_of(topics.rounds)
            self._admin.partitions_of(topics.notes)  # that it does not exist is told by its name
            layout = {"shards": str(shards), "buckets": str(self._settings.buckets)}
            self._store.layout.check_held(layout)
            self._shards = shards
        if self._clock() > self._until_s:
            try:
                self._noted = self._notes.read()
            finally:
                self._notes.close()  # the next read goes on where this one ended
            self._ends = self._admin.ends(self._admin.topics.rounds, self._partitions)
            self._until_s = self._clock() + NOTED_S

    def _records(self, ladder: str, players: Sequence[str]) -> dict[str, bytes | None]:
        """The record of each player; None for who has none. Each shard is read at one instant."""
        found: dict[str, bytes | None] = {}
        shard = shards_of(players, self._shards)
        asked = {
            int(one): [(ladder, players[i]) for i in np.flatnonzero(shard == one).tolist()]
            for one in np.unique(shard)
        }
        held = self._store.read({one: PlayerColumn.of(wanted) for one, wanted in asked.items()})
        for one, wanted in asked.items():
            if held[one].position.applied == UNFINISHED:
                raise BeliefsBehind(f"the rebuild of shard {one} is not finished")
            found |= zip((player for _, player in wanted), held[one].records, strict=True)
        return found
