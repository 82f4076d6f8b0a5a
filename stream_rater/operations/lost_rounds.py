"""Closes partitions of `round-completed` that lost records, as a part of a rebuild.

Parts, events and other records still name offsets of the lost rounds. If other rounds took these
offsets, subscribers would take the older event for the newer one. So the rebuild

1. marks the store as unfinished;
2. commits an offset with a checksum that no record has: from now on each reader sees that the log
   lost records, also once the log reaches the offset again;
3. appends empty records, until all later offsets are new ones;
4. writes a ladder event, so that no later rebuild believes parts of lost rounds;
5. replays the log up to the end that it has then, and writes the beliefs;
6. publishes an event of each player, of any partition, whose last event says something else than
   the belief: parts that waited to be applied are not applied any more;
7. commits the end, with the checksum of the last record.

Each step may be repeated, and whatever the log lacks is still known after each of them.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import chain

import numpy as np

from stream_rater.columns.sharding import partition_of, shards_of
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import Ladders
from stream_rater.contract import season_ended
from stream_rater.contract.events import LOG_LOST, CorrectionCause
from stream_rater.contract.record import ANY_OFFSET, Player, Record
from stream_rater.operations.corrected_rebuild import LastPublished
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.rebuild_store import new_epoch
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.ports import Event, SourceCommit, SourceTail
from stream_rater.pipeline.same_history import lost_rounds
from stream_rater.pipeline.updater.belief_changes import correction_events
from stream_rater.places.port import Place
from stream_rater.rating import record as belief_record
from stream_rater.rating import stages
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.checkpoint import CheckpointHead
from stream_rater.replay.edited_log import Verdicts

Published = Mapping[Player, LastPublished]
NO_RECORD = 2**32  # A checksum that no record has.
FILLER = b"log-lost "
"""What the last appended record begins with; a random word follows. The other appended records are
empty, and so have the same checksum: a loss of some of them would not show."""
MOST_FILLERS = 50_000_000
"""The most records appended by default: a wrong offset must not fill a disk."""


def named_offsets(
    committed: Mapping[int, SourceCommit | None], cutoff: Cutoff, newest: Published,
    notes: LadderLog, heads: Iterable[tuple[str, CheckpointHead]], place: Place,
) -> dict[int, int]:  # fmt: skip
    """By partition, the offset after all that anything names. `committed`: the estimators' offsets.
    `newest`: what was last published. `heads`: the heads of checkpoints, with their ladders."""
    found = {p: each.offset if each is not None else 0 for p, each in committed.items()}
    home = cache(lambda ladder: partition_of(ladder, len(found)))
    for ladder, offset in chain(
        cutoff.named(), _seasons(place),
        ((ladder, each.offset) for (ladder, _), each in newest.items()),
        ((ladder, max(each.place)) for ladder, some in notes.corrections.items() for each in some),
        ((name, max(of.offset - 1, *chain(of.last[:1], *of.corrections))) for name, of in heads),
    ):  # fmt: skip
        found[home(ladder)] = max(found[home(ladder)], offset + 1)
    for partition, offset in chain(place.rejected_to(), notes.replayed.items()):
        found[partition] = max(found.get(partition, 0), offset)
    return found


def _seasons(place: Place) -> Iterator[tuple[str, int]]:
    """Yield the ladder of each past season, and the offset at which the next one starts."""
    for found in map(season_ended.decoded, place.standings(marks=True)):
        if isinstance(found, season_ended.SeasonKept):
            yield found.ladder, found.offset


class Closing:
    """Closes the partitions that lost records."""

    def __init__(
        self, lost: Collection[int], place: Place, ladders: Ladders, newest: Published,
        reach: Mapping[int, int],
    ) -> None:  # fmt: skip
        """`newest`: each player's last published values. `reach`: what `named_offsets` returns."""
        self._lost, self._place, self._ladders = lost, place, ladders
        self._newest, self._reach = newest, reach
        self._ends: dict[int, int] = {}
        """By partition that lost records, its end after the records were appended."""

    def check(self, most: int) -> None:
        """Raise Failed if more than `most` records would be appended to a partition."""
        for partition, end in enumerate(self._place.ends()):
            if partition in self._lost and (count := self._reach[partition] - end) > most:
                raise Failed(
                    f"partition {partition} of the rounds lost records and ends at {end}, and "
                    f"something names its offset {self._reach[partition] - 1}: if that is right, "
                    f"give --fill {count}, and so many empty records are appended"
                )

    def close(self) -> dict[int, int]:
        """Append records up to all offsets that something names, and one more. Returns the ends."""
        self._place.begin_rebuild(new_epoch())
        self._disown()
        self._fill()
        ends = self._place.ends()
        self._ends = {p: ends[p] for p in self._lost}
        return self._ends

    def _disown(self) -> None:
        """Commit offsets that no log led to, so that a repeated rebuild knows how far to fill."""
        ends = self._place.ends()
        offsets = {p: max(self._reach[p], ends[p]) for p in self._lost}
        self._place.commit_rounds(offsets, dict.fromkeys(offsets, NO_RECORD))

    def _fill(self) -> None:
        for p in self._lost:
            while (count := self._reach[p] - self._place.ends()[p]) > 0:
                self._place.append(Record(p, ANY_OFFSET, None) for _ in range(count))
            self._place.append([Record(p, ANY_OFFSET, self._last_value())])

    def _last_value(self) -> bytes | None:
        return FILLER + secrets.token_hex(8).encode()

    def publish(self, verdicts: Verdicts, sent: Callable[[int], int]) -> None:
        """Publish an event of each player whose belief is not what was last published, or who has
        no belief any more. `sent`: the offset of a partition before which all rounds are in the
        beliefs."""
        shards = self._place.shards
        now, seen = datetime.now(UTC).isoformat(), set[Player]()
        last_of = cache(lambda ladder: sent(partition_of(ladder, len(self._reach))) - 1)

        @cache
        def rule_of(ladder: str, offset: int) -> RatingRule | None:
            terms = self._ladders.find(ladder, offset)
            started = verdicts.of(ladder).started_before(offset)
            return None if terms is None else stages.rule_of(terms.rating, started)

        def events(batch: Sequence[tuple[Player, bytes | None]]) -> Iterator[Event]:
            headers = belief_record.headers_of([data for _, data in batch])
            for (who, data), header in zip(batch, headers[:, np.newaxis], strict=True):
                ladder, name = who
                # A round of a partition that lost nothing may be sent and not committed.
                place = max(last_of(ladder), int(header["last"][0]))
                if who in seen or (rule := rule_of(ladder, place)) is None:
                    continue
                seen.add(who)
                initial = rule.initial_mu, rule.initial_sigma, 0
                present = header[["mu", "sigma", "rounds"]].item() if data else initial
                before = self._newest.get(who, LastPublished(place, *initial))
                if before[1:] == present:
                    continue
                header["mu"], header["sigma"], _ = present
                header["previous_mu"], header["previous_sigma"] = before.mu, before.sigma
                shard, cause = (
                    int(shards_of([name], shards)[0]), CorrectionCause(cause=LOG_LOST, offset=place)
                )  # fmt: skip
                yield from correction_events(shard, ladder, cause, now, rule, [name], header)

        def all_events() -> Iterator[Event]:
            for batch in self._place.beliefs():
                yield from events(batch)
            yield from events([(who, None) for who in self._newest if who not in seen])

        self._place.publish(all_events())

    def release(self) -> None:
        """Commit the ends, so that workers go on behind all that was replayed."""
        self._place.commit_rounds(self._ends)


# --- from where a rebuild counts rounds as rated -------------------------------------------------

# Usually the committed offsets say what was sent and what was applied. After an unclean leader
# election they may lie beyond the end of a log, or name records that the log no longer has
# (`same_history`). Then they prove nothing. All rounds that the log has now count as rated, and no
# part is pending.


@dataclass(frozen=True)
class Reached:
    """How far the log was sent and applied when the workers stopped."""

    applied: dict[int, int]  # By shard, the offset before which all parts are published.
    sent: dict[int, int]
    """By partition of `round-completed`, the offset before which all rounds were sent."""
    lost: Mapping[int, str]  # The reason for each partition of `round-completed` that lost records.
    is_torn: bool = False  # Whether a log lost records. Then each round before `sent` counts.

    @property
    def warning(self) -> str:
        """What an operator must know; empty if no log lost records."""
        if not self.is_torn:
            return ""
        lost = "; ".join(self.lost.values()) or "performance-estimated lost parts"
        after = (
            "Empty records take the lost offsets, and players whose last event is not true any "
            "more get one with the cause log-lost. Report the lost rounds again"
            if self.lost else "Events that were not published are never published"
        )  # fmt: skip
        return (
            f"Kafka lost records that were acknowledged: {lost}. All rounds that the log has now "
            f"count. {after}"
        )


def reached(
    applied: Mapping[int, int | None], part_ends: Sequence[int],
    committed: Mapping[int, SourceCommit | None], found: Mapping[int, SourceTail],
) -> Reached:  # fmt: skip
    """How far the log was sent and applied. `applied`, `committed`: the committed offsets of the
    updaters by shard, and of the estimators by partition; None: never committed. `part_ends`: the
    ends of the shards. `found`: by partition, what the log has at the committed offset."""
    g = {shard: offset or 0 for shard, offset in applied.items()}
    known = {p: each for p, each in committed.items() if each is not None}
    sent = {p: known[p].offset if p in known else 0 for p in committed}
    lost = lost_rounds({p: each for p, each in known.items() if p in found}, found)
    if not lost and all(g[shard] <= end for shard, end in enumerate(part_ends)):
        return Reached(g, sent, lost)
    return Reached(
        dict(enumerate(part_ends)), sent | {p: found[p].end for p in lost}, lost, is_torn=True
    )
