"""Finds the cut-off of each player: the last round that the store includes when `applied` is g. A
rebuild replays the player's rounds up to it.

g is the updaters' committed offset: all parts before it are published, and no later part is. The
cut-off of a player depends on the player's parts:

- parts before g: the largest source offset in them;
- no part before g, but later ones: the offset before the smallest source offset in those;
- no part at all (parts are kept for days only): all rounds before the estimators' committed offset,
  because all of their parts were sent long ago;
- parts before g only in another shard, from a time with fewer shards: the cut-off is that of a
  player without parts before g, but at least the largest source offset in those parts. Later parts,
  in the player's present shard, may have been deleted before them.

If any part was deleted, the remaining ones may be older parts that were sent again. Then the last
event of a player, which `rating-changed` keeps for ever, is a lower bound of what was published.
A row of a seed or a reset counts as a row of a round, also if it changed nothing: the part was
sent, and so were all earlier parts of the player. It is not a correction, and has no record.

Updaters ignore a part that was cut for fewer shards than there are, or for fewer than a mark before
it names. Such a part does not count here. If it is pending before any such mark, it must not belong
to a committed round, because no worker would send it again: updaters of as many shards must apply
it first. A part behind such a mark is of a process that the group had already excluded: the next
owner of its rounds sent them again, for the number of shards at that time.

Updaters also ignore a part behind a mark that names another epoch than the part (`schema`). Such a
part does not count, unless it was pending in the next rebuild: then it was applied after that one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from stream_rater.columns import kernels, sharding
from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.events import RatingChanged
from stream_rater.contract.record import Player, Record, checksum, runs
from stream_rater.contract.seeds import SEEDS
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.pipeline.parts.decoder import PartView, Rows
from stream_rater.rating.model import Evidence
from stream_rater.replay.player_index import PlayerTable

NONE_BEFORE, NONE_AFTER = -1, 2**62
ANY_KERNEL = 2**62  # A number above all kernel versions.
AT_ONCE = 10_000  # The largest number of events that are recorded at a time.
Offsets = Mapping[int, int]  # By partition, the committed offset; 0 if nothing was committed.
NO_OFFSETS: dict[int, int] = {}


class Proof:
    """The evidence in pending parts, and the rounds for which the replay computes other evidence.
    Workers apply pending parts as they are. If one was computed from beliefs of another history, or
    by other parameters, the ratings after it are not those of the replay."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], bytes] = {}
        """By the player's row and the round's offset, the evidence in the first pending part."""
        self._least = 2**62
        self.unproven: set[int] = set()
        """The offsets of rounds with a pending part that has other evidence than the replay."""

    def add(self, parts: Rows, which: Ints, rows: Ints, offsets: Ints) -> None:
        """Note the evidence in the rows `which` of parts. `rows`: the players' rows. `offsets`: the
        offsets of their rounds. Evidence of another kernel version is left out, because it cannot
        be compared."""
        if not len(which) or any(each.kernel != kernels.KERNEL_VERSION for each in parts.rules):
            return
        evidence = np.ascontiguousarray(parts.evidence[which])
        for row, offset, each in zip(rows.tolist(), offsets.tolist(), evidence, strict=True):
            self._waiting.setdefault((row, offset), each.tobytes())
        self._least = min(self._least, int(offsets.min()))

    def compare(self, rows: Ints, offsets: Ints, evidence: Evidence) -> None:
        """Compare the evidence that a replay has computed for the players in these rows, in rounds
        at these offsets, with that in pending parts."""
        if int(offsets.max(initial=-1)) < self._least:
            return
        found = np.full((len(rows), schema.EVIDENCE_COLUMNS), np.nan)
        found[:, : evidence.shape[1]] = evidence
        for row, offset, each in zip(rows.tolist(), offsets.tolist(), found, strict=True):
            waiting = self._waiting.get((row, offset))
            if waiting is not None and waiting != each.tobytes():
                self.unproven.add(offset)


class Misplaced(ValueError):
    """A part is pending in a shard that is no longer its players' shard."""


class _OffsetByRow:
    """The largest (or the smallest) offset recorded for each row."""

    def __init__(self, players: PlayerTable, pick: np.ufunc, none: int) -> None:
        self._players = players
        self._pick = pick
        self._none = none
        self._offsets = np.empty(0, np.int64)
        self._is_empty = True

    def __bool__(self) -> bool:
        """Whether any offset was recorded."""
        return not self._is_empty

    def add(self, rows: Ints, offsets: Ints) -> None:
        """Record an offset for each of these rows."""
        self._make_room()
        self._pick.at(self._offsets, rows, offsets)
        self._is_empty = False

    def _make_room(self) -> None:
        """Make room for each player."""
        known = len(self._players)
        if known > len(self._offsets):
            more = max(known, 2 * len(self._offsets)) - len(self._offsets)
            self._offsets = np.append(self._offsets, np.full(more, self._none, np.int64))

    def of(self, rows: Ints) -> Ints:
        """The recorded offset of each row, or `none`."""
        self._make_room()
        return self._offsets[rows]

    def least(self) -> int:
        """The smallest recorded offset; NONE_AFTER if none was recorded."""
        known = self._offsets[self._offsets != self._none]
        return int(known.min()) if len(known) else NONE_AFTER


class Cutoff:
    """The cut-off of each player: the source offset of the last round that counts."""

    def __init__(
        self, applied: Offsets, sent: Offsets, shards: int, kernel: int = kernels.KERNEL_VERSION,
        *, everything: bool = False, replayed: dict[int, int] = NO_OFFSETS,
        lost: Collection[int] = (),
    ) -> None:  # fmt: skip
        """`everything`: each round before `sent` counts, because the parts are of another history
        (`lost_rounds`). `replayed`: by partition, the offset up to which an earlier rebuild took
        all rounds for that reason. `lost`: the partitions that lost records. Parts and events are
        left out if they name an offset below `replayed`, or one of the lost partitions: they may be
        of lost rounds."""
        self._everything = everything
        self.closes = bool(lost)  # Whether the rebuild closes partitions (`lost_rounds`).
        since = replayed | dict.fromkeys(lost, NONE_AFTER)
        self._since = np.array([since.get(p, 0) for p in range(len(sent))], np.int64)
        self.players = PlayerTable()
        self._applied = applied
        reached = (max(sent[p], replayed.get(p, 0)) for p in range(len(sent)))
        self._sent = np.fromiter(reached, np.int64, len(sent))
        self._shards = shards
        self._kernel = kernel
        self._before = _OffsetByRow(self.players, np.maximum, NONE_BEFORE)
        """The largest source offset before g, in the player's own shard."""
        self._elsewhere = _OffsetByRow(self.players, np.maximum, NONE_BEFORE)
        """The largest source offset before g, in shards that were formerly the player's."""
        self._after = _OffsetByRow(self.players, np.minimum, NONE_AFTER)
        """The smallest source offset from g on."""
        self._published = _OffsetByRow(self.players, np.maximum, NONE_BEFORE)
        """The largest source offset in published events."""
        self._shards_in_mark: dict[int, int] = {}  # By shard, how many shards its last mark names.
        self._epochs: dict[int, bytes] = {}  # By shard, the epoch that its last mark names.
        self._of_older_stores: dict[int, list[Record]] = {}
        """By shard, the parts behind its last mark that have another epoch, and are not pending."""
        self.tails: dict[int, int] = {}  # By shard, the checksum of the last record before g.
        self.proof = Proof()  # The evidence in the parts from g on.
        self.with_parts: set[int] = set()  # The shards with parts.
        self._furthest: dict[str, int] = {}  # By ladder, the largest source offset of any part.
        self.corrected: dict[Player, tuple[int, bytes]] = {}
        """By player, the offset and the record of the last correction part before g."""
        self._corrections: dict[Player, list[int]] = {}
        """By player, the offsets of corrections in pending parts."""
        self._ignored: list[tuple[PlayerColumn, Ints]] = []
        """The players and source offsets of ignored parts. These may be the only ones of a
        round."""

    def add(self, records: Sequence[Record]) -> None:
        """Note records of `performance-estimated`. Raises UnknownPart or Misplaced."""
        for each in records:
            if each.offset == self._applied.get(each.partition, 0) - 1 and not each.unreadable:
                self.tails[each.partition] = checksum(each.value)
        left = iter(records)
        for group in runs([each.value or b"" for each in records], decoder.TOGETHER_BYTES):
            self._add_batch(list(islice(left, len(group))), decoder.read_all(group, self._kernel))

    def _add_batch(self, records: Sequence[Record], parts: Sequence[PartView | None]) -> None:
        """Note the parts in some records. `parts`: the part in each record, all decoded together;
        None where a record is not in the present form of parts."""
        read, sizes, counts = list[Record](), list[int](), list[bool]()
        ignored = list[bool]()
        for part, each in zip(parts, records, strict=True):
            if part is None:
                self._add_single(each)
                continue
            sizes.append(len(part))
            is_old = self._is_of_older_store(part, each)
            if is_old or part.cause:
                counts.append(False)
                ignored.append(False)
                if not is_old:
                    self._add_given(each, part)
                continue
            counts.append(self._takes_effect(part.shards, each))
            ignored.append(not counts[-1] and not self._is_of_former_owner(part.shards, each))
            self.with_parts.add(each.partition)
            if counts[-1]:
                read.append(each)
        if not counts:
            return
        decoded = next(part.decoded for part in parts if part is not None)
        players, offsets = decoded.players, decoded.offset
        left = np.flatnonzero(np.repeat(ignored, sizes))
        if len(left):
            self._ignored.append((players.take(left), offsets[left]))
        if read:
            rows = np.flatnonzero(np.repeat(counts, sizes))
            own = [size for size, count in zip(sizes, counts, strict=True) if count]
            self._add_rows(read, own, players.take(rows), offsets[rows])
            pending = rows[np.repeat([self._is_pending(each) for each in read], own)]
            player_rows = self.players.rows(players.take(pending))
            self.proof.add(decoded, pending, player_rows, offsets[pending])

    def add_published(self, published: Iterable[RatingChanged]) -> None:
        """Note the players and source offsets of published events."""
        left = iter(published)
        while group := list(islice(left, AT_ONCE)):
            players = PlayerColumn.of([(each.ladder, each.player) for each in group])
            offsets = np.array([each.offset for each in group], np.int64)
            chosen = np.flatnonzero(self.counts(players, offsets))
            self._published.add(self.players.rows(players)[chosen], offsets[chosen])

    def check(self) -> None:
        """Check the ignored parts, once all parts are recorded. Raises Misplaced if an ignored part
        belongs to a committed round, and no other part of its player shows that this round is
        applied or pending."""
        for players, offsets in self._ignored:
            partition = self._partitions(players)
            rows = self.players.rows(players)
            there = np.maximum(self._before.of(rows), self._elsewhere.of(rows)) >= offsets
            there |= self._after.of(rows) <= offsets
            lost = ~there & (offsets < self._sent[partition]) & self.counts(players, offsets)
            if lost.any():
                at = int(np.argmax(lost))
                raise Misplaced(
                    f"a part of the round at offset {offsets[at]} of partition "
                    f"{partition[at]} was cut for fewer than {self._shards} shards and was not "
                    "applied"
                )

    def _partitions(self, players: PlayerColumn) -> Ints:
        """(P,) the partition of the rounds of each player."""
        homes = [sharding.partition_of(each, len(self._sent)) for each in players.ladders.texts]
        return np.array(homes, np.int64)[players.ladder]

    def counts(self, players: PlayerColumn, offsets: Ints) -> Flags:
        """(P,) whether these source offsets can be of rounds that the log has (`replayed`)."""
        if not self._since.any():
            return np.ones(len(offsets), np.bool_)
        found: Flags = offsets >= self._since[self._partitions(players)]
        return found

    def replay_to(self, ends: Offsets) -> None:
        """Let all rounds before these ends count, in partitions that lost records."""
        for partition, end in ends.items():
            self._sent[partition] = end

    def named(self) -> Iterator[tuple[str, int]]:
        """Yield ladders with source offsets that parts name, the largest one of each at least."""
        yield from self._furthest.items()
        for players, offsets in self._ignored:
            names = players.ladders.texts
            yield from zip((names[i] for i in players.ladder), offsets.tolist(), strict=True)

    def _takes_effect(self, cut_for: int, record: Record) -> bool:
        """Whether updaters apply or have applied a part cut for `cut_for` shards (0: unknown)."""
        marked = self._shards_in_mark.get(record.partition, 0)
        return not 0 < cut_for < (self._shards if self._is_pending(record) else marked)

    def _is_of_former_owner(self, cut_for: int, record: Record) -> bool:
        """Whether a part lies behind a mark that names more shards than the part was cut for. Then
        another worker owned the rounds by that time, and has sent them again."""
        return 0 < cut_for < self._shards_in_mark.get(record.partition, 0)

    def _add_single(self, record: Record) -> None:
        """Note a record that is not in the present form of parts: a part of an older kernel, a
        mark, or something else."""
        if record.unreadable:
            raise schema.UnknownPart(f"offset {record.offset}: {record.unreadable}")
        try:
            part = decoder.read(record.value or b"", self._newest_kernel(record), oldest=0)
        except schema.RebuildMark as found:
            self._pass_mark(record.partition, found.mark)
            return
        except schema.NotAPart:
            return
        known = range(schema.OLDEST_KERNEL, self._kernel + 1)
        if self._is_of_older_store(part, record):
            return
        if part.cause or all(each.kernel in known for each in part.decoded.rules):
            self._add_batch([record], [part])
        else:
            self._add_part(record, part.shards, part.decoded.players, part.decoded.offset)

    def _pass_mark(self, shard: int, mark: schema.Mark) -> None:
        """Note a mark, and the parts before it that were pending when it was written: updaters have
        applied them, whatever their epochs."""
        self._epochs.pop(shard, None)
        for each in self._of_older_stores.pop(shard, ()):
            if each.offset >= mark.pending:
                self._add_single(each)
        self._shards_in_mark[shard] = mark.shards
        if mark.epoch is not None:
            self._epochs[shard] = mark.epoch

    def _is_of_older_store(self, part: PartView, record: Record) -> bool:
        """Whether updaters have ignored a part, unless the next mark says that it was pending."""
        if part.epoch in (None, self._epochs.get(record.partition)) or self._is_pending(record):
            return False
        if record.partition in self._epochs:
            self._of_older_stores.setdefault(record.partition, []).append(record)
        return record.partition in self._epochs

    def _add_part(self, record: Record, cut_for: int, players: PlayerColumn, offsets: Ints) -> None:
        """Note a part that was cut for so many shards (0: unknown)."""
        self.with_parts.add(record.partition)
        if self._takes_effect(cut_for, record):
            self._add_rows([record], [len(offsets)], players, offsets)
        elif not self._is_of_former_owner(cut_for, record):
            self._ignored.append((players, offsets))

    def _add_given(self, record: Record, part: PartView) -> None:
        """Note a part of corrections, seeds or resets. The source offset of a row is that of its
        correction, seed or reset."""
        rows = part.decoded.take(np.arange(part.first, part.last))
        players, offsets = rows.players, rows.offset
        self.with_parts.add(record.partition)
        if part.cause in SEEDS:
            self._add_part(record, part.shards, players, offsets)
        elif self._takes_effect(part.shards, record):  # else the successor applies it again
            self._add_rows([record], [len(offsets)], players, offsets)
            if self.counts(players, offsets).all():  # else the correction was lost
                self._add_corrections(record, rows)

    def _add_corrections(self, record: Record, rows: Rows) -> None:
        each = zip(rows.players, rows.offset.tolist(), rows.beliefs.strings(), strict=True)
        is_pending = self._is_pending(record)
        for player, offset, data in each:
            if is_pending:
                self._corrections.setdefault(player, []).append(offset)
            else:
                self._add_corrected(player, offset, data)

    def _newest_kernel(self, record: Record) -> int:
        """The newest kernel version that a part may have. Updaters of this release must be able to
        apply a pending part. An applied part only shows which rounds its players had."""
        return self._kernel if self._is_pending(record) else ANY_KERNEL

    def _add_corrected(self, player: Player, offset: int, data: bytes) -> None:
        """Note a record from a correction part before g. It is left out if the player already has a
        record of this correction or a later one: then a paused worker sent it again, perhaps by
        another kernel version."""
        known = self.corrected.get(player)
        if known is None or offset > known[0]:
            self.corrected[player] = offset, data

    def pending_corrections(self) -> dict[Player, int]:
        """The players whom pending parts correct, with the offset of the first one to apply."""
        players = list(self._corrections)
        applied = self.applied_offsets(PlayerColumn.of(players)).tolist()
        found = {}
        for player, last in zip(players, applied, strict=True):
            if new := [each for each in self._corrections[player] if each > last]:
                found[player] = min(new)
        return found

    def sent(self, partition: int) -> int:
        """The estimators' committed offset of a partition."""
        return int(self._sent[partition])

    def all_pending(self, players: PlayerColumn) -> Flags:
        """(P,) whether all remaining parts of each player are pending."""
        rows = self.players.rows(players)
        pending: Flags = self._after.of(rows) < NONE_AFTER
        pending &= self.applied_offsets(players) == NONE_BEFORE
        return pending

    def applied_offsets(self, players: PlayerColumn) -> Ints:
        """(P,) the largest source offset in the applied parts of each player; -1 without any."""
        rows = self.players.rows(players)
        return np.maximum(self._before.of(rows), self._elsewhere.of(rows))

    def furthest(self, ladder: str) -> int:
        """The largest source offset of any part of a ladder; -1 without any."""
        return self._furthest.get(ladder, -1)

    def _add_rows(
        self, records: Sequence[Record], sizes: Sequence[int], players: PlayerColumn, offsets: Ints
    ) -> None:
        """Note the rows of the parts in these records. `sizes`: the number of rows of each record.
        `players`, `offsets`: the player and the source offset of each row."""
        shard = np.repeat(np.array([each.partition for each in records]), sizes)
        pending = np.repeat(np.array([self._is_pending(each) for each in records]), sizes)
        at_home = sharding.shards_of_names(players.names, self._shards) == shard
        misplaced = pending & ~at_home
        if misplaced.any():
            which = np.searchsorted(np.cumsum(sizes), np.argmax(misplaced), side="right")
            each = records[int(which)]
            raise Misplaced(
                f"the part at offset {each.offset} of shard {each.partition} waits to be applied, "
                f"and its players belong to other shards among {self._shards}"
            )
        rows = self.players.rows(players)
        for number, ladder in enumerate(players.ladders.texts):
            own = offsets[players.ladder == number]
            self._furthest[ladder] = max(self.furthest(ladder), int(own.max(initial=-1)))
        counts = self.counts(players, offsets)
        for table, chosen in (
            (self._before, at_home & ~pending), (self._after, pending), (self._elsewhere, ~at_home),
        ):  # fmt: skip
            chosen &= counts
            if chosen.any():
                table.add(rows[chosen], offsets[chosen])

    def _is_pending(self, record: Record) -> bool:
        """Whether the record is pending: its offset is g or later."""
        return record.offset >= self._applied.get(record.partition, 0)

    def of(self, rows: Ints, partitions: Ints) -> Ints:
        """(P,) the cut-off of the players in these rows, whose rounds are in these partitions."""
        reached = self._sent[partitions] - 1  # each look at a table waits for distant memory
        if self._after:
            after = self._after.of(rows)
            reached = np.where(after < NONE_AFTER, after - 1, reached)
        if self._before:
            before = self._before.of(rows)
            reached = np.where(before > NONE_BEFORE, before, reached)
        for table in (self._elsewhere, self._published):
            if table:
                reached = np.maximum(reached, table.of(rows))
        if self._everything:
            reached = np.maximum(reached, self._sent[partitions] - 1)
        return reached

    def least(self) -> int:
        """A lower bound of all players' cut-offs."""
        after = min(self._after.least(), int(self._sent.min()))
        return min(self._before.least(), after - 1)
