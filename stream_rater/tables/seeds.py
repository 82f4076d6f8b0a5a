"""Turns a table of ratings into the seeds of a ladder.

All rows are read and validated before the first seed is given. The players wait in a temporary
file, so memory holds some numbers for each.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from stream_rater.contract.seeds import MOST_PLAYERS, MOST_SEED_BYTES, SeededPlayer
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds.seed_messages import (
    Scale,
    SeedMessage,
    decimals_of,
    own_scale,
    seed_messages,
)
from stream_rater.rounds.seed_records import mistake_in
from stream_rater.rounds.validation import Invalid
from stream_rater.tables.event_lines import Spool
from stream_rater.tables.ratings import RatedPlayer, RatingsTable

MOST_KEPT: Final = 1_000
"""The most mistakes of a table whose texts are stored."""
EXAMPLES: Final = 5
"""The number of players that are shown before a seed is sent."""
MOST_SAMPLED: Final = 4_096
"""The most players among whom the examples are chosen, beside the lowest and the highest."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[SeededPlayer]).decode


class SeedExample(NamedTuple):
    """A player, and the seed that the player gets."""

    row: RatedPlayer
    """The player on the scale of the table."""
    seeded: SeededPlayer
    """The player on the scale of the ladder."""


class TableSeeds:
    """The players of a table, on the scale of a ladder."""

    def __init__(self, table: RatingsTable, scale: Scale, rating: RatingConfig) -> None:
        """Read all rows of the table, whose ratings are on this scale. `rating`: the parameters of
        the ladder. Raises OSError if the table cannot be read."""
        self.count = 0
        """The number of valid players."""
        self.cut = 0
        """The number of those whose sigma was cut to the initial one of the ladder."""
        self.rejected = 0
        """The number of rejected rows."""
        self.rejections: list[tuple[int, Invalid]] = []
        """The first of them, by line: the number of the row, and the reason."""
        self._table, self._rating = table, rating
        self._spool, self._pending = Spool(), list[SeededPlayer]()
        self._hashes, self._lines = array("q"), array("q")
        self._twice: frozenset[str] = frozenset()
        self._sample = _Sample()
        for each in self._converted(scale):
            self._add(each)
        self._flush()
        self._spool.seal()
        self._find_doubles()
        self.rejections.sort(key=lambda each: each[0])

    def examples(self) -> list[SeedExample]:
        """Up to EXAMPLES players, from the lowest rating to the highest."""
        return self._sample.spread(EXAMPLES)

    def players(self) -> Iterator[SeededPlayer]:
        """Yield the valid players in the order of the table, each once."""
        seen: set[str] = set()
        for i in range(len(self._spool)):
            for each in _decode(self._spool[i]):
                if each.player in self._twice:
                    if each.player in seen:
                        continue
                    seen.add(each.player)
                yield each

    def messages(
        self, ladder: str, at: str, source: str, most_bytes: int = MOST_SEED_BYTES
    ) -> Iterator[SeedMessage]:
        """Yield the seeds, as `seed_messages` does."""
        return seed_messages(ladder, at, source, self.players(), most_bytes)

    # --- reading ---

    def _converted(self, scale: Scale) -> Iterator[SeedExample]:
        """Yield the valid rows with what becomes of them. Sigma is cut to the initial one."""
        rating = self._rating
        shift, factor = scale.to(own_scale(rating))
        decimals, most = decimals_of(rating), rating.initial_sigma
        for row in self._table.rows(self._reject):
            mu, sigma, is_cut = round(shift + factor * row.mu, decimals), None, False
            if row.sigma is not None and rating.takes_sigma:
                sigma = round(factor * row.sigma, decimals)
                if is_cut := sigma > most:
                    sigma = most
            if wrong := mistake_in(rating, mu, sigma, row.rounds):
                field, _, text = wrong.partition(": ")
                self._reject(row.line, Invalid("bad-seed", self._explained(row, field, text)), ())
                continue
            self.cut += is_cut
            yield SeedExample(row, SeededPlayer(row.player, mu, sigma, row.rounds))

    def _explained(self, row: RatedPlayer, field: str, text: str) -> str:
        """A mistake with the column, and with the value in the table if that is another one."""
        place, given = self._table.place_of(field), f"{getattr(row, field):g}"
        found, _, rest = text.partition(" ")
        if found == given or field == "rounds":
            return f"{place}: {text}"
        return f"{place}: {given}, which is {found} on the ladder's scale, {rest}"

    def _add(self, example: SeedExample) -> None:
        self.count += 1
        self._hashes.append(hash(example.seeded.player))
        self._lines.append(example.row.line)
        self._sample.add(example)
        self._pending.append(example.seeded)
        if len(self._pending) >= MOST_PLAYERS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._spool.append(_encode(self._pending))
            self._pending = []

    def _reject(self, line: int, invalid: Invalid, _: Sequence[Any]) -> None:
        self.rejected += 1
        if len(self.rejections) < MOST_KEPT:
            self.rejections.append((line, invalid))

    def _find_doubles(self) -> None:
        """Reject the rows of players who stand in an earlier row, too."""
        hashes = np.frombuffer(self._hashes, np.int64)
        ordered = np.sort(hashes)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(repeated):
            rows = np.flatnonzero(np.isin(hashes, repeated))
            self._reject_doubles(rows.tolist())

    def _reject_doubles(self, rows: Sequence[int]) -> None:
        """`rows`: the numbers of the valid rows whose players may stand in several of them."""
        first, twice, wanted = dict[str, int](), set[str](), iter(rows)
        row, number = next(wanted, -1), 0
        for i in range(len(self._spool)):
            players = _decode(self._spool[i])
            while 0 <= row < number + len(players):
                player, line = players[row - number].player, self._lines[row]
                if player in first:
                    twice.add(player)
                    self.count -= 1
                    unit = self._table.unit
                    text = f"player {player!r} stands in {unit} {first[player]}, too"
                    self._reject(line, Invalid("bad-id", text), ())
                else:
                    first[player] = line
                row = next(wanted, -1)
            number += len(players)
        self._twice = frozenset(twice)


class _Sample:
    """Examples of an unknown number of players: the lowest, the highest, and every k-th one."""

    def __init__(self) -> None:
        self._kept: list[SeedExample] = []
        self._step, self._count = 1, 0
        self._ends: list[SeedExample] = []

    def add(self, example: SeedExample) -> None:
        """Add the next player."""
        if self._count % self._step == 0:
            self._kept.append(example)
            if len(self._kept) > MOST_SAMPLED:
                self._kept, self._step = self._kept[::2], 2 * self._step
        self._count += 1
        mu = example.seeded.mu
        if not self._ends:
            self._ends = [example, example]
        elif mu < self._ends[0].seeded.mu:
            self._ends[0] = example
        elif mu > self._ends[1].seeded.mu:
            self._ends[1] = example

    def spread(self, most: int) -> list[SeedExample]:
        """Up to this many of them, spread evenly by rating."""
        every = sorted((*self._kept, *self._ends), key=lambda each: each.row.line, reverse=True)
        found = {each.seeded.player: each for each in every}  # of each player the first row
        ordered = sorted(found.values(), key=lambda each: (each.seeded.mu, each.row.line))
        places = np.linspace(0, len(ordered) - 1, min(most, len(ordered))).round().astype(int)
        return [ordered[place] for place in places.tolist()]
