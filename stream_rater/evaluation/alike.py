"""The same rounds and the same outcomes for all configurations that are compared.

Configurations may differ in what they can be scored on: one says how likely a draw is and another
does not, or one does not rate rounds in which all tie. A difference between scores of unlike rounds
says nothing. So three rules hold in every comparison:

- draws are outcomes if all configurations say how likely they are; else they are left out for all;
- a round is scored if each configuration has a score for it;
- who is experienced follows from the rounds played, not from those that a system rates.

What is left out is counted (`Counted`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.ranges import bounds
from stream_rater.evaluation.accuracy import distances_of
from stream_rater.evaluation.measures import FIELDS, WEIGHT_OF
from stream_rater.evaluation.season import Session
from stream_rater.rating.model import DID_NOT_FINISH
from stream_rater.rating.parameters import RatingConfig

WEIGHTS = tuple(dict.fromkeys(WEIGHT_OF.values()))
"""The columns that weigh measures."""

FORETOLD = FIELDS.index("pairs_foretold")
DRAWN, UNFINISHED = FIELDS.index("pairs_drawn"), FIELDS.index("pairs_unfinished")


def draws_of(configs: Iterable[RatingConfig]) -> bool:
    """Whether all of these say how likely a draw is."""
    return all(each.draw_width > 0.0 for each in configs)


def rounds_before(rows: Ints, before: Ints) -> Ints:
    """(P,) how many rounds each player had played before each of these, which come in the order of
    the season: `before` (players,) had been played by the player of each row, and `rows` (P,) are
    those of the rounds' players."""
    order = np.argsort(rows, kind="stable")
    held = rows[order]
    found = np.empty(len(rows), np.int64)
    found[order] = np.arange(len(rows)) - np.searchsorted(held, held)
    total: Ints = before[rows] + found
    return total


def count_unrated(session: Session, rated: Ints, scores: Floats) -> None:
    """Count the pairs of the rounds that were not rated in their (R, len(FIELDS)) scores: all of a
    round's entries tie there, or none finished. `rated` are the indices of the others."""
    others = np.setdiff1d(np.arange(len(session.rounds)), rated)
    first = bounds(session.rounds.entries)[others]
    finished = session.rounds.place[first] != DID_NOT_FINISH
    sizes = session.rounds.entries[others].tolist()
    for i, n, drawn in zip(others.tolist(), sizes, finished.tolist(), strict=True):
        scores[i, DRAWN if drawn else UNFINISHED] = np.sum(n - distances_of(n))


def alike(scores: Sequence[Floats]) -> list[Floats]:
    """Copies of (R, FIELDS) scores by several configurations, without those that not all have."""
    found = [each.copy() for each in scores]
    columns = [FIELDS.index(name) for name in WEIGHTS]
    columns = [column for column in columns if column < scores[0].shape[1]]
    for column in columns:
        common = np.all([each[:, column] > 0.0 for each in scores], axis=0)
        for each in found:
            each[~common, column] = 0.0
            weights = each[:, column], found[0][:, column]
            assert np.array_equal(*weights), f"{FIELDS[column]}: unlike rounds are compared"
    unscored = found[0][:, FIELDS.index("foretold")] == 0.0
    for each in found:
        each[unscored, FORETOLD] = 0.0
        for column in (DRAWN, UNFINISHED):  # who did not rate a round may not have looked at it
            each[:, column] = np.max([other[:, column] for other in scores], axis=0)
    return found


class Counted(NamedTuple):
    """What scores are of, and what is left out of them."""

    rounds: int
    """With a log loss."""
    pairs: int
    """Of entries, with a log loss; those that drew are among them where draws are outcomes."""
    drawn: int
    """Pairs that drew and have a log loss."""
    drawn_left_out: int
    unfinished_left_out: int
    """Pairs of which neither finished."""
    winners: int
    """Rounds whose winner is scored."""

    def told(self) -> str:
        """In words, for below a table."""
        parts = [f"log loss and Brier score are of {self.pairs:,} pairs in {self.rounds:,} rounds"]
        for count, what in (
            (self.drawn, "{} draws among them"), (self.drawn_left_out, "{} draws were left out"),
            (self.unfinished_left_out, "{} pairs of which neither finished were left out"),
        ):  # fmt: skip
            if count:
                parts.append(what.format(f"{count:,}"))
        return "; ".join(parts)


def counted(scores: Floats, *, draws: bool) -> Counted:
    """Of (R, FIELDS) scores; `draws`: whether draws are outcomes."""
    scored = scores[:, FIELDS.index("foretold")] > 0.0
    drawn = int(scores[:, DRAWN].sum())
    taken = int(scores[scored, DRAWN].sum()) if draws else 0
    decided = FIELDS.index("decided")
    winners = np.count_nonzero(scores[:, decided]) if scores.shape[1] > decided else 0
    return Counted(
        int(np.count_nonzero(scored)), int(scores[:, FORETOLD].sum()), taken, drawn - taken,
        int(scores[:, UNFINISHED].sum()), int(winners),
    )  # fmt: skip
