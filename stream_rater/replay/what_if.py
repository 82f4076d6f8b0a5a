"""Computes the changes that a future round or a correction would make, and changes nothing. The
service's own kernels rate the result of a round on a copy of the beliefs of its players, so the
time does not depend on the size of the ladder. For corrections the log is replayed as it is, and as
they would edit it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Ints
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders, any_ladder
from stream_rater.contract.events import EPOCH, Entry, RoundCompleted, to_json
from stream_rater.contract.record import Record
from stream_rater.rating.seasons import seen
from stream_rater.rating.wins import Believed
from stream_rater.replay.edited_log import batches_of
from stream_rater.replay.edits import Edits
from stream_rater.replay.ledger import verdicts_of_log
from stream_rater.replay.pool import Pool
from stream_rater.replay.sequential import Rated, Replay, rate_together
from stream_rater.rounds.batch import OneRound, RoundBatch
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.validation import Invalid

NOT_YET = -1  # The offset of a round that was not reported, which no correction concerns.


class KnownBeliefs(NamedTuple):
    """The beliefs of some players of a ladder, for a future round."""

    ladder: str
    pool: Pool  # A pool that has the beliefs of these players.
    edits: Edits  # The edits that apply to future rounds.
    time_s: int  # The completion time of the future round, in Unix seconds.


class RemovedPlayer(Exception):
    """A player cannot play a future round. The text is one line that names the remedy."""

    def __init__(self, player: str, ladder: str) -> None:
        super().__init__(
            f"player {player!r} was removed from ladder {ladder!r}, or merged into another one of "
            "these: leave them out"
        )
        self.player = player


def playing_as(players: Sequence[str], known: KnownBeliefs) -> dict[str, str]:
    """For each of these names, the player who owns its entries in a future round, after the
    ladder's corrections. Raises RemovedPlayer if corrections would remove the entry."""
    found = {}
    owners = known.edits.entries.players_of(players, known.time_s)
    for player, now in zip(players, owners, strict=True):
        if now is None:
            raise RemovedPlayer(player, known.ladder)
        found[player] = now
    return found


def believed(pool: Pool, players: Sequence[str]) -> Believed:
    """The beliefs of these players now. A player who has not played is a newcomer."""
    mu = np.full(len(players), pool.rule.initial_mu)
    sigma = np.full(len(players), pool.rule.initial_sigma)
    rounds = np.zeros(len(players), np.int64)
    found = [(i, row) for i, name in enumerate(players) if (row := pool.find(name)) is not None]
    if found:
        known, rows = np.array(found).T
        headers = pool.headers(rows)
        mu[known], sigma[known] = seen(pool.rule, headers)
        rounds[known] = headers["rounds"]
    return Believed(mu, sigma, rounds)


def what_if(pool: Pool, edits: Edits, round_: RoundBatch) -> Rated | None:
    """Rate one round on a copy of a ladder's pool, which stays as it is. Returns None if the round
    would change no rating. `edits` are the edits that apply to future rounds."""
    now = edits.edited(round_, NOT_YET)
    if now is None or not OneRound(now).is_informative(skip_all_tied=pool.rating.skip_all_tied):
        return None
    first = np.zeros(1, np.int64)
    return rate_together(pool.part(now.names), now, first, first)


def rate_future_round(
    known: KnownBeliefs, standings: Sequence[Entry], weight: float = 1.0,
    performance_ceiling: float | None = None,
) -> Rated | None:  # fmt: skip
    """Rate a future round. Returns None if it would change no rating. Raises Invalid if it cannot
    be rated."""
    value = to_json(RoundCompleted(
        round_id="what-if", ladder=known.ladder, standings=list(standings), weight=weight,
        completed_at=(EPOCH + timedelta(seconds=known.time_s)).isoformat(),
        performance_ceiling=performance_ceiling,
    ))  # fmt: skip
    decoder = RoundDecoder(any_ladder(known.pool.rating))
    rounds, (rejection,) = decoder.decode([Record(0, 0, value, received_s=float("inf"))])
    if rejection is not None:
        raise rejection
    return what_if(known.pool, known.edits, rounds)


def order_by_sides(rated: Rated, sides: Sequence[Sequence[str]], edits: Edits) -> tuple[Ints, Ints]:
    """(P,) the indices of the round's players in the order of `sides`, and (P,) the index of the
    side of each, in that order. Players that corrections remove are left out."""
    given = [(player, i) for i, side in enumerate(sides) for player in side]
    now = edits.entries.players_of([player for player, _ in given], int(rated.rounds.time[0]))
    places = {who: place for place, who in enumerate(now) if who is not None}
    place = np.array([places[each] for each in rated.rounds.names.texts()], np.int64)
    order = np.argsort(place)
    return order, np.array([i for _, i in given], np.int64)[place[order]]


# --- corrections ----------------------------------------------------------------------------------


@dataclass
class CorrectionPreview:
    """Two replays of a log, without and with the previewed corrections, and their differences."""

    before: Replay
    after: Replay
    rounds: int = 0  # The number of accepted rounds of the ladder.
    touched: int = 0  # The number of these rounds that the corrections would change.
    seeds: int = 0  # The number of its accepted seeds and resets that they would change.
    rejected: list[tuple[int, Invalid]] = field(default_factory=list)
    """The index of each previewed correction that would be rejected, and the reason."""
    others_rejected: list[tuple[int, Invalid]] = field(default_factory=list)
    """The offset of each waiting correction of the log that would be rejected, and the reason."""


def preview_corrections(
    read_log: Callable[[], Iterable[Record]], corrections: Sequence[Record], ladder: str,
    ladders: Ladders, window: int, partitions: int = ANYWHERE,
) -> CorrectionPreview:  # fmt: skip
    """Preview corrections of a ladder as if they followed the last record of its partition.
    `read_log` yields the records of that partition from the first one, each time it is called. The
    offsets in `corrections` are ignored."""
    added: list[Record] = []

    def with_corrections() -> Iterator[Record]:
        end = 0
        for record in read_log():
            yield record
            end = record.offset + 1
        added[:] = [structs.replace(each, offset=end + i) for i, each in enumerate(corrections)]
        yield from added

    old = verdicts_of_log(read_log, ladders, window, partitions)
    new = verdicts_of_log(with_corrections, ladders, window, partitions)
    found = CorrectionPreview(
        Replay(ladders, window, partitions, old), Replay(ladders, window, partitions, new)
    )
    before, after = old.of(ladder), new.of(ladder)
    for batch in batches_of(read_log()):
        log = found.before.feed(batch).log
        own = log.rounds.of_ladder(ladder)
        found.after.feed(batch)
        found.rounds += len(own)
        if after is not before:
            if len(own):
                found.touched += after.count_differences(before, own.rounds, own.offset)
            seeds = [each for each in log.seeds if each.ladder == ladder]
            found.seeds += sum(after.changes_seed(before, each) for each in seeds)
    for batch in batches_of(added):
        found.after.feed(batch)
    ours = {(each.partition, each.offset): i for i, each in enumerate(added)}
    for place, invalid in new.rejections.items():
        if place in ours:
            found.rejected.append((ours[place], invalid))
        elif place not in old.rejections:
            found.others_rejected.append((place[1], invalid))
    found.rejected.sort(key=lambda each: each[0])
    return found
