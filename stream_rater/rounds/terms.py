"""How rounds are rated and limited, by their ladder and offset, for many rounds at once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.sharding import ANYWHERE, partition_of
from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import MAX_ID_BYTES
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds.batch import RoundHead
from stream_rater.rounds.reported import Bounds
from stream_rater.rounds.validation import id_mistake

MOST_LADDERS = 10_000
"""Ladders whose terms are remembered: under a template any name is a ladder's."""


class _Terms(NamedTuple):
    """What holds for a ladder's rounds; the last seven are those of Bounds."""

    steady: bool = True
    """Whether it holds at every offset."""
    rule: int = -1
    """Index of the rating configuration."""
    named: bool = False
    known: bool = False
    most_entries: int = 0
    most_weight: float = 0.0
    most_ahead_s: int = 0
    strict: bool = False
    home: int = ANYWHERE


class LadderTerms:
    """The terms of all ladders, in a topic with so many partitions."""

    def __init__(self, ladders: Ladders, partitions: int) -> None:
        self.ratings: list[RatingConfig] = []
        """The rating configurations met so far."""
        self._ladders = ladders
        self._partitions = partitions
        self._numbers: dict[int, int] = {}
        self._known: dict[str, _Terms] = {}

    def of(self, heads: Sequence[RoundHead], offsets: Sequence[int]) -> tuple[Ints, Bounds]:
        """(R,) the index of the rating configuration of each round, which was read at this offset
        (-1 where the ladder is unknown), and its bounds."""
        ladders = [head.ladder for head in heads]
        which = {ladder: i for i, ladder in enumerate(dict.fromkeys(ladders))}
        table = np.array([self._remembered(ladder) for ladder in which], np.float64)
        table = table[[*map(which.__getitem__, ladders)]]
        if not table[:, 0].all():
            for i in np.flatnonzero(table[:, 0] == 0).tolist():
                table[i] = self._look_up(ladders[i], offsets[i])
        columns = table.T
        return columns[1].astype(np.int64), Bounds(*columns[2:])

    def _remembered(self, ladder: str) -> _Terms:
        """The terms of a ladder; they are not steady if they depend on the offset."""
        terms = self._known.get(ladder)
        if terms is None:
            named = self._ladders.ladders.get(ladder)
            steady = named is None or named.offsets == (0,)
            terms = self._look_up(ladder, 0)._replace(steady=steady)
            if len(ladder) <= MAX_ID_BYTES:
                if len(self._known) == MOST_LADDERS:
                    self._known.clear()
                self._known[ladder] = terms
        return terms

    def _look_up(self, ladder: str, offset: int) -> _Terms:
        """What holds for a ladder's round at this offset."""
        terms = self._ladders.find(ladder, offset)
        if terms is None or id_mistake(ladder):
            return _Terms(named=not id_mistake(ladder))
        limits = terms.limits
        home = partition_of(ladder, self._partitions) if self._partitions else ANYWHERE
        return _Terms(
            True, self._number(terms.rating), True, True, limits.max_entries, limits.max_weight,
            limits.max_skew_s, limits.unknown_fields == "reject", home,
        )  # fmt: skip

    def _number(self, rating: RatingConfig) -> int:
        number = self._numbers.setdefault(id(rating), len(self.ratings))
        if number == len(self.ratings):
            self.ratings.append(rating)
        return number
