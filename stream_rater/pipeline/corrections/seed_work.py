"""The work on seeds and resets in the estimator: send their rows as parts.

Seeds and resets wait in the same queue as corrections (`corrections`), and the rounds behind them
are deferred in the same way. They need no replay and no ladder event: a row depends on the record,
and on the corrections before it. Whether it changes a belief depends on the belief alone, and the
updater decides it. So no belief is read before the parts are sent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns import player_map
from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.events import MOST_BYTES
from stream_rater.pipeline.corrections.correction_work import PartOptions
from stream_rater.pipeline.estimator.estimation import part_ends
from stream_rater.pipeline.parts import seed_parts
from stream_rater.pipeline.parts.seed_parts import RecordInPart, SeedPart
from stream_rater.pipeline.ports import Scatter, Step, ask
from stream_rater.rating.stages import RatingRule
from stream_rater.rounds.seed_records import Seed

MOST_ROWS = 50_000
"""The most rows of adjacent records that are sent together. One record may have more."""

Sent = Callable[[Mapping[int, int], Mapping[int, Fingerprints]], None]
"""A function that is called once parts are acknowledged, with the ends of the parts and the players
in them, both by shard."""


class QueuedSeed(NamedTuple):
    """A valid seed or reset that was read, as reported, and whose parts are not sent yet."""

    seed: Seed

    @property
    def ladder(self) -> str:
        """The ladder."""
        return self.seed.ladder

    @property
    def partition(self) -> int:
        """The partition of the record."""
        return self.seed.partition

    @property
    def offset(self) -> int:
        """The offset of the record."""
        return self.seed.offset

    def goes_with(self, other: "QueuedSeed") -> bool:
        """Whether both can be in one part: they are of one kind and ladder, and have the same
        parameters."""
        own, its = self.seed, other.seed
        return (own.kind, own.ladder, own.rating) == (its.kind, its.ladder, its.rating)


class SeedWork:
    """The work on adjacent seeds or resets of one ladder, which can be in one part."""

    def __init__(
        self, group: Sequence[QueuedSeed], edited: Sequence[Seed], rule: RatingRule,
        options: PartOptions,
    ) -> None:  # fmt: skip
        """`edited` are the records in `group` after the corrections before them, without those that
        change no belief any more. `rule` is the ladder's rule at all of them."""
        self.group = list(group)
        """The records that are finished together."""
        self.rows = sum(map(len, edited))
        """The number of rows of all parts."""
        self._options = options
        self._whole = _concatenated(edited, rule, options) if edited else None
        self.players = self._fingerprints()
        """The fingerprints of the players."""

    def step(self, sent: Sent) -> Step[bool]:
        """Send all parts. Returns True: then the work is done."""
        if messages := list(self._messages()):
            offsets = yield from ask(Scatter(messages))
            order, cuts = player_map.by_shard(self.players)
            players = {shard: self.players[order[where]] for shard, where in cuts}
            sent(part_ends(messages, offsets), players)
        return True

    def _fingerprints(self) -> Fingerprints:
        whole = self._whole
        if whole is None:
            return np.empty(0, np.uint64)
        names, count = whole.names, len(whole)
        return player_map.fingerprints(names, [whole.ladder], [count], self._options.shards)

    def _messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield the parts as (shard, message). Within a shard, those with the players' first rows
        come first."""
        if self._whole is None:
            return
        for rows in by_turn(self._whole.names):
            order, cuts = player_map.by_shard(self.players[rows])
            for shard, where in cuts:
                for message in self._pieces(self._whole, rows[order[where]]):
                    yield shard, message

    def _pieces(self, whole: SeedPart, rows: Ints) -> Iterator[bytes]:
        """Encode these rows, of which none is of the same player as another, cut into as many
        messages as are needed."""
        most = self._options.rows_per_part
        message = seed_parts.encode(whole.take(rows)) if len(rows) <= most else b""
        if message and (len(message) <= MOST_BYTES or len(rows) == 1):
            yield message
            return
        half = most if len(rows) > most else len(rows) // 2
        yield from self._pieces(whole, rows[:half])
        yield from self._pieces(whole, rows[half:])


def by_turn(names: StringColumn) -> list[Ints]:
    """The rows of each player's first name among `names`, then those of the second ones, and so
    on."""
    _, which = np.unique(names.hashes, return_inverse=True)
    if len(names) == int(which.max(initial=-1)) + 1:
        return [np.arange(len(names))]
    seen, turns = dict[bytes, int](), list[list[int]]()
    for row, name in enumerate(names.strings()):
        turn = seen[name] = seen.get(name, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(row)
    return [np.array(rows, np.int64) for rows in turns]


def _concatenated(seeds: Sequence[Seed], rule: RatingRule, options: PartOptions) -> SeedPart:
    """The rows of all these records, in order."""
    sizes = [len(each) for each in seeds]

    def column(name: str) -> Floats:
        joined: Floats = np.concatenate([getattr(each, name) for each in seeds])
        return joined

    return SeedPart(
        seeds[0].kind, seeds[0].ladder, rule,
        [RecordInPart(each.offset, each.time, each.round_id, each.head.completed_at)
         for each in seeds],
        np.repeat(np.arange(len(seeds)), sizes),
        StringColumn.concat([each.names for each in seeds]),
        column("mu"), column("sigma"), column("rounds").astype(np.int64),
        options.shards, options.kernel,
    )  # fmt: skip
