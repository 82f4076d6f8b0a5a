"""Rounds that share no player as one set of columns, which stage 1 computes with."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from stream_rater.rating import book
from stream_rater.rating.model import Ints, Table, Wave
from stream_rater.standings import Standings


def _entry_starts(rounds: Sequence[Standings], entries: Sequence[int]) -> Ints:
    """First player of each entry of all these rounds, and the end of the last."""
    sizes = [len(each.share) for each in rounds]
    if sizes == entries:  # nobody is in a team
        return np.arange(sum(sizes) + 1)
    firsts = np.cumsum([0, *sizes])
    shifts = np.repeat(firsts[:-1], entries)
    starts = np.concatenate([each.entry_starts[:-1] for each in rounds])
    return np.append(starts + shifts, firsts[-1])


class _Texts(Sequence[list[str]]):
    """The players of rounds by id, made of those that are looked at."""

    def __init__(self, rounds: Sequence[Standings]) -> None:
        self._rounds = rounds

    def __len__(self) -> int:
        return len(self._rounds)

    def __getitem__(self, index: Any) -> Any:
        return self._rounds[index].players


def wave_of(rounds: Sequence[Standings], header: Table, rows: Ints | None = None) -> Wave:
    """Rounds that share no player as columns; `header` has their players' beliefs, in order.

    Or in these `rows`.
    """
    entries = [len(each.place) for each in rounds]
    known = book.look_up(header, np.arange(len(header)) if rows is None else rows)
    mu, sigma, played, last_time = known
    return Wave(
        round_starts=np.array([0, *accumulate(entries)]),
        weight=np.array([each.weight for each in rounds], np.float64),
        ceiling=np.array([each.ceiling for each in rounds], np.float64),
        time=np.array([each.time for each in rounds], np.int64),
        place=np.concatenate([each.place for each in rounds]),
        entry_starts=_entry_starts(rounds, entries),
        share=np.concatenate([each.share for each in rounds]),
        mu=mu,
        sigma=sigma,
        rounds=played,
        last_time=last_time,
        players=_Texts(rounds),
    )
