"""What Redis holds of some players of a ladder, as a pool of them alone."""

import time
from collections.abc import Sequence

import numpy as np

from stream_rater.adapters.redis import RedisStore
from stream_rater.adapters.topics import Admin
from stream_rater.cli.failures import named_failures
from stream_rater.cli.predict import Known, playing_as
from stream_rater.cli.same_ladders import disagreement, noted_ladders
from stream_rater.cli.terminal import Failed, unknown_ladder
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config import BadConfiguration, Ladder, Settings, service_ladders
from stream_rater.pipeline.edits_in_force import LadderEdits
from stream_rater.rating import record
from stream_rater.replay.pool import Pool


def live_beliefs(settings: Settings, ladder: str, players: Sequence[str]) -> Known:
    """What is believed of these players now. Who has not played is a newcomer.

    Raises BadConfiguration if the ladders file is not that of the workers, Failed if no round of
    the ladder was rated or a server does not answer.
    """
    with named_failures():
        return _live(settings, ladder, players)


def _live(settings: Settings, ladder: str, players: Sequence[str]) -> Known:
    admin, store = Admin(settings), RedisStore(settings)
    (shards,) = admin.partitions_of(admin.topics.changed)  # as many as parts are cut into
    ladder_log, ladders = noted_ladders(settings, admin), service_ladders(settings)
    if ladder not in ladder_log.ladders:
        raise Failed(unknown_ladder(ladder, ladder_log.ladders))
    if why := disagreement(settings, ladders, ladder_log, only=ladder):
        raise BadConfiguration(f"{why}: nothing was predicted")
    terms = ladders.find(ladder)
    assert terms is not None, "its notes agree"
    edits = LadderEdits(ladder_log.corrections.get(ladder, ())).last
    known = Known(ladder, Pool(Ladder(rating=terms.rating), edits.started), edits, int(time.time()))
    names = sorted(set(playing_as(players, known).values()))
    held = _records(store, shards, ladder, names)
    found = [name for name in names if held[name] is not None]
    pool = Pool.of(
        terms.rating, edits.started, StringColumn.of(found),
        record.decode([held[name] for name in found], terms.rating.kept + 1, 0.0, 1.0),
    )  # fmt: skip
    return known._replace(pool=pool)


def _records(
    store: RedisStore, shards: int, ladder: str, players: Sequence[str]
) -> dict[str, bytes | None]:
    """The record of each player; None for who has none. Each shard is read at one instant."""
    found: dict[str, bytes | None] = {}
    shard = shards_of(players, shards)
    asked = {
        int(one): [(ladder, players[i]) for i in np.flatnonzero(shard == one).tolist()]
        for one in np.unique(shard)
    }
    held = store.read({one: PlayerColumn.of(wanted) for one, wanted in asked.items()})
    for one, wanted in asked.items():
        found |= zip((player for _, player in wanted), held[one].records, strict=True)
    return found
