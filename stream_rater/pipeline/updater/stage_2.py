"""Stage 2 on records: beliefs as the store holds them, before and after some rows."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.rating import record, seasons, stages
from stream_rater.rating.model import Beliefs, Evidence, Table, newcomers
from stream_rater.rating.stages import RatingRule


class Rated(Protocol):
    """n rows: a player each, in one round."""

    @property
    def rules(self) -> Sequence[RatingRule]:
        """Of all rows."""

    @property
    def rule(self) -> Ints:
        """(n,) index of each row's rule."""

    @property
    def offset(self) -> Ints:
        """(n,) offset of each row's round."""

    @property
    def time(self) -> Ints:
        """(n,) when each row's round was completed, Unix seconds."""

    @property
    def evidence(self) -> Evidence:
        """(n, 3) or (n, 4) as stage 1 computed it."""


def decoded(rules: Sequence[RatingRule], rule: Ints, records: Sequence[bytes | None]) -> Beliefs:
    """Decode the records of D players. One without a belief starts from a rule; rule[i] is the
    index of the i-th player's. So does one whose belief has no rounds: a correction took
    them. Raises UnknownRecord."""
    assert len(rule) == len(records)
    capacity = max((each.kept for each in rules), default=0) + 1
    beliefs = record.decode(records, capacity, 0.0, 1.0)
    new = np.flatnonzero(beliefs.header["rounds"] == 0)
    if len(new):
        before = beliefs.header[new]
        initial = [newcomers(1, 0, each.initial_mu, each.initial_sigma) for each in rules]
        by_rule = np.concatenate([each.header for each in initial])
        beliefs.header[new] = by_rule[rule[new]]
        _keep_told(beliefs.header, new, before)
    return beliefs


def _keep_told(header: Table, new: Ints, before: Table) -> None:
    """Keep what stays of beliefs without rounds, which start anew in the rows `new`: their `last`,
    and what was last told of the player."""
    header["last"][new] = before["last"]
    corrected = np.flatnonzero(before["version"] != 0)
    rows, old = new[corrected], before[corrected]
    untold = old["untold"] != 0
    header["previous_mu"][rows] = np.where(untold, old["previous_mu"], old["mu"])
    header["previous_sigma"][rows] = np.where(untold, old["previous_sigma"], old["sigma"])
    header["untold"][rows] = 1


def update(beliefs: Beliefs, which: Ints, rows: Rated, chosen: Ints | slice = slice(None)) -> None:
    """Apply fresh rows, all or those chosen, to the beliefs `which` (n,), in place. A player has
    one of them at most."""
    rules, rule = list(rows.rules), rows.rule[chosen]
    before = seasons.draw(rules, rule, beliefs, which)
    stages.update(beliefs, which, rows.evidence[chosen], rules, rule)
    stages.note_round(beliefs, which, rows.offset[chosen], rows.time[chosen])
    seasons.remember(beliefs, before)


def update_in_turns(beliefs: Beliefs, which: Ints, turn: Ints, rows: Rated) -> Table:
    """Apply fresh rows to the beliefs, in place. Returns (n,) the headers after each row.

    `which` (n,) are the beliefs of the rows' players, and `turn` (n,) says how many rows of its
    player come before each.
    """
    after = np.empty(len(which), beliefs.header.dtype)
    for number in range(int(turn.max(initial=-1)) + 1):
        chosen = np.flatnonzero(turn == number)
        update(beliefs, which[chosen], rows, chosen)
        after[chosen] = beliefs.header[which[chosen]]
    return after
