"""Restricts a comparison of configurations to the rounds and outcomes that all of them can score.

Configurations may differ in what they can be scored on. For example, one does not rate rounds in
which all entries tie. A difference between scores of different rounds has no meaning. So three
rules apply to every comparison:

- draws are outcomes, for all configurations, from the first block of rounds on that has one. A
  configuration without a draw margin gets the width that suits the rounds before (`calibrating`),
  so that it can be compared with one that has a margin. In rounds without draws there are two
  outcomes, for all of them;
- a round is scored only if each configuration has a score for it;
- whether an entry is experienced depends on the rounds played, not on those that a system rates.

`Counted` has the numbers of the pairs that are left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.ranges import bounds
from stream_rater.evaluation.accuracy import scored_distances
from stream_rater.evaluation.measures import FACTS_OF, FIELDS
from stream_rater.evaluation.season import Session
from stream_rater.rating.model import DID_NOT_FINISH, Places
from stream_rater.rounds.batch import RoundBatch

WEIGHTS = tuple(dict.fromkeys(each.weight for each in FACTS_OF.values()))

PAIRS_SCORED = FIELDS.index("pairs_scored")
DRAWN, UNFINISHED = FIELDS.index("pairs_drawn"), FIELDS.index("pairs_unfinished")


def draws_in(rounds: RoundBatch) -> bool:
    """Whether two entries of a round share a place. Entries that did not finish do not."""
    return have_draws(rounds.entries, rounds.place)


def have_draws(sizes: Ints, place: Places) -> bool:
    """The same for (R,) numbers of entries. `place` (E,) is in order in each round."""
    shared = (place[1:] == place[:-1]) & (place[1:] != DID_NOT_FINISH)
    shared[bounds(sizes)[1:-1] - 1] = False
    return bool(shared.any())


def rounds_before(rows: Ints, before: Ints) -> Ints:
    """(P,) the number of rounds that each player had played before each of these rounds. `rows`
    (P,) has the rows of the players, round by round in the order of the season. `before` (players,)
    has, for each row, the number of rounds that its player played earlier."""
    order = np.argsort(rows, kind="stable")
    sorted_rows = rows[order]
    found: Ints = before[rows]
    found[order] += np.arange(len(rows)) - np.searchsorted(sorted_rows, sorted_rows)
    return found


def count_unrated(session: Session, rated: Ints, scores: Floats) -> None:
    """Add the pairs of the unrated rounds to the counts in their (R, len(FIELDS)) scores. `rated`
    has the indices of the rated rounds. In an unrated round all entries tie, or none finished."""
    others = np.setdiff1d(np.arange(len(session.rounds)), rated)
    first = bounds(session.rounds.entries)[others]
    finished = session.rounds.place[first] != DID_NOT_FINISH
    sizes = session.rounds.entries[others].tolist()
    for i, n, drawn in zip(others.tolist(), sizes, finished.tolist(), strict=True):
        scores[i, DRAWN if drawn else UNFINISHED] = np.sum(n - scored_distances(n))


def alike(scores: Sequence[Floats]) -> list[Floats]:
    """Copies of the (R, len(FIELDS)) scores of several configurations. A score that some of them
    lack has the weight 0 in all copies. The assertion fails if the configurations weigh a round
    differently."""
    found = [each.copy() for each in scores]
    columns = [FIELDS.index(name) for name in WEIGHTS]
    columns = [column for column in columns if column < scores[0].shape[1]]
    for column in columns:
        common = np.all([each[:, column] > 0.0 for each in scores], axis=0)
        for each in found:
            each[~common, column] = 0.0
            weights = each[:, column], found[0][:, column]
            assert np.array_equal(*weights), f"{FIELDS[column]}: unlike rounds are compared"
    unscored = found[0][:, FIELDS.index("scored")] == 0.0
    for each in found:
        each[unscored, PAIRS_SCORED] = 0.0
        for column in (DRAWN, UNFINISHED):  # a system that skips a round may not count
            each[:, column] = np.max([other[:, column] for other in scores], axis=0)
    return found


class Counted(NamedTuple):
    """The numbers of rounds and pairs that are scored, and of those that are left out."""

    rounds: int  # Rounds that have a log loss.
    pairs: int
    """Pairs of entries that have a log loss. They include drawn pairs where draws are outcomes."""
    drawn: int  # Pairs that drew and have a log loss.
    drawn_left_out: int  # Pairs that drew and have no log loss.
    unfinished_left_out: int  # Pairs in which neither entry finished. They are never scored.
    winners: int  # Rounds whose winner is scored.

    def sentence(self) -> str:
        """These numbers as a sentence to print below a table."""
        parts = [f"log loss and Brier score are of {self.pairs:,} pairs in {self.rounds:,} rounds"]
        for count, what in (
            (self.drawn, "{} draws among them"), (self.drawn_left_out, "{} draws were left out"),
            (self.unfinished_left_out, "{} pairs of which neither finished were left out"),
        ):  # fmt: skip
            if count:
                parts.append(what.format(f"{count:,}"))
        return "; ".join(parts)


def counted(scores: Floats, *, draws: bool) -> Counted:
    """The counts for (R, len(FIELDS) or OF_PAIRS) scores. `draws`: draws are outcomes."""
    scored = scores[:, FIELDS.index("scored")] > 0.0
    drawn = int(scores[:, DRAWN].sum())
    taken = int(scores[scored, DRAWN].sum()) if draws else 0
    decided = FIELDS.index("decided")
    winners = np.count_nonzero(scores[:, decided]) if scores.shape[1] > decided else 0
    return Counted(
        int(np.count_nonzero(scored)), int(scores[:, PAIRS_SCORED].sum()), taken, drawn - taken,
        int(scores[:, UNFINISHED].sum()), int(winners),
    )  # fmt: skip
