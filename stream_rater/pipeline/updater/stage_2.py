"""Stage 2 on stored records: decodes beliefs, and applies rows to them."""

from collections.abc import Sequence

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.rating import record, seasons, stages
from stream_rater.rating.model import Beliefs, Evidence, Table, newcomers
from stream_rater.rating.stages import RatingRule


def decoded(
    rules: Sequence[RatingRule], rule_index: Ints, records: Sequence[bytes | None]
) -> Beliefs:
    """Decode the records of D players. `rule_index` (D,) is the rule of each.

    A player without a record starts with the initial belief of the rule. So does a player whose
    belief has no rounds because a correction removed them. Raises UnknownRecord.
    """
    assert len(rule_index) == len(records)
    capacity = max((each.kept for each in rules), default=0) + 1
    beliefs = record.decode(records, capacity, 0.0, 1.0)
    new = np.flatnonzero(beliefs.header["rounds"] == 0)
    if len(new):
        before = beliefs.header[new]
        initial = [newcomers(1, 0, each.initial_mu, each.initial_sigma) for each in rules]
        by_rule = np.concatenate([each.header for each in initial])
        beliefs.header[new] = by_rule[rule_index[new]]
        _keep_published(beliefs.header, new, before)
    return beliefs


def _keep_published(header: Table, new: Ints, before: Table) -> None:
    """Copy two things from the old beliefs `before` to the initial ones in the rows `new`: their
    `last`, and the mu and sigma that were last published. These beliefs have no rounds."""
    header["last"][new] = before["last"]
    corrected = np.flatnonzero(before["version"] != 0)
    rows, old = new[corrected], before[corrected]
    unannounced = old["untold"] != 0
    header["previous_mu"][rows] = np.where(unannounced, old["previous_mu"], old["mu"])
    header["previous_sigma"][rows] = np.where(unannounced, old["previous_sigma"], old["sigma"])
    header["untold"][rows] = 1


def update(
    beliefs: Beliefs, which: Ints, rules: Sequence[RatingRule], rule_index: Ints,
    evidence: Evidence, offset: Ints, time: Ints,
) -> None:  # fmt: skip
    """Apply n fresh rows to the beliefs `which` (n,), in place. No two rows are of one player.

    `rule_index` (n,) is the index of each row's rule, and `evidence` (n, 3) or (n, 4) is the
    evidence of stage 1. `offset` (n,) and `time` (n,), in Unix seconds, are those of each row's
    round.
    """
    rules = list(rules)
    before = seasons.draw(rules, rule_index, beliefs, which)
    stages.update(beliefs, which, evidence, rules, rule_index)
    stages.note_round(beliefs, which, offset, time)
    seasons.remember(beliefs, before)
