"""The search spaces of `tune`: the hyperparameters of each system, their ranges and first guesses.

Each system has its own in `rating.systems`. The name of a dimension is the name of a field of the
configuration, or a name that the system's `from_dimensions` translates.

Most systems, Elo-MMR among them, depend on ratios only. The predictions stay the same if all
parameters in points are doubled (initial_sigma, sigma_limit, beta, drift), or if all ratings are
shifted. So initial_sigma is fixed while the others vary. initial_mu varies only where a system has
fixed levels of ratings. Kerby's systems have no sigma: their `scale` is fixed as in chess, and the
learning rate varies.

Optional fields of the rounds have dimensions of their own (`field_dimensions`).

Where the rounds name seats, the points of each seat are one more dimension, `seats.NAME`. Only the
differences between the seats of a round matter. So if every entry has a seat, the points of one
name are redundant. The first name by alphabet then keeps 0 points.

Where rounds have scores that a system can use, `score.scale` and `score.cap` are two more. Their
ranges are relative to the mean margin of the rounds, as scores have no unit that we know. Where the
scale is 0, scores do not count.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.ranges import bounds
from stream_rater.evaluation.season import Session
from stream_rater.rating.model import LEAST_TEAM
from stream_rater.rating.parameters import SYSTEMS, RatingConfig, from_builtins
from stream_rater.rating.seats import seat_name
from stream_rater.rating.systems.common import Dimension, rounded
from stream_rater.rating.systems.two_moment import BETTER
from stream_rater.rounds.batch import RoundBatch

SPACES: dict[str, tuple[Dimension, ...]] = {name: each.space for name, each in SYSTEMS.items()}
"""The dimensions of each system."""

WIDE = {name: (*each.space, *each.more_space) for name, each in SYSTEMS.items()}
"""The dimensions that `tune` searches for the rounds of a file."""

SEAT = "seats."  # The name of a seat's dimension begins with this.
MOST_SEATS = 8
"""If the rounds name more seats than this, no points are searched: they are no seats."""
MOST_OF_SEAT = 300.0  # The most points of a seat in duels of single players.
MOST_PRESET, OF_SEATS = 2, (-0.6, -0.35, -0.2, -0.1, 0.1, 0.2, 0.35, 0.6)
"""Up to so many seats have presets: these parts of the most points."""
OF_SCALES = (0.005, 0.015, 0.04)  # The presets of the scale of scores, as parts of the largest.
SCALE, CAP = "score.scale", "score.cap"  # The names of the dimensions of scores.
DIFFERENCE = "difference"  # How margins are measured, unless a ladder measures them by ratio.
MOST_POINTS = 10_000.0  # The most points that the mean margin may stand for.
NO_MARGINS = np.empty(0)


def configuration(system: str, values: Mapping[str, float], by: str = DIFFERENCE) -> RatingConfig:
    """The configuration of a system with these values of its dimensions. `by`: how margins of
    scores are measured."""
    own = {name: value for name, value in values.items() if not is_of_field(name)}
    table = {"system": system, **SYSTEMS[system].from_dimensions(own)}
    if seats := seats_of(values):
        table["seats"] = seats
    if values.get(SCALE, 0.0) > 0.0:
        table["score"] = {"scale": values[SCALE], "cap": values[CAP], "by": by}
    return from_builtins(table)


def is_of_field(name: str) -> bool:
    """Whether a dimension of this name belongs to an optional field of rounds."""
    return name.startswith(SEAT) or name in (SCALE, CAP)


def field_dimensions(
    system: str, sessions: Iterable[Session], by: str = DIFFERENCE
) -> tuple[Dimension, ...]:
    """The dimensions of the optional fields that these rounds have. `by`: as in `configuration`."""
    rounds = [each.rounds for each in sessions]
    seats = seat_dimensions(seats_to_tune(rounds), spread_of(rounds))
    scored = "score" in SYSTEMS[system].__struct_fields__
    if not scored or (margin := mean_margin(rounds, by)) == 0.0:
        return seats
    return (
        *seats,
        Dimension(SCALE, 0.0, MOST_POINTS / margin, 0.0, "square", points=1, parameter="score"),
        Dimension(CAP, margin, 30.0 * margin, 6.0 * margin, parameter="score"),
    )


def seats_of(values: Mapping[str, float]) -> dict[str, float]:
    """The points by seat, from the values of all dimensions."""
    return {name.removeprefix(SEAT): x for name, x in values.items() if name.startswith(SEAT)}


def seat_dimensions(names: Sequence[str], spread: float = 1.0) -> tuple[Dimension, ...]:
    """The dimensions of the points of these seats. `spread`: that of a side's performance, as a
    multiple of a single player's."""
    most = rounded(MOST_OF_SEAT * spread)
    return tuple(
        Dimension(SEAT + name, -most, most, 0.0, "linear", points=1, parameter="seats")
        for name in names
    )


def spread_of(rounds: Iterable[RoundBatch]) -> float:
    """The spread of the performance of a side of the median size, as a multiple of a player's: the
    noise of n members adds up, and that of each may grow with n (`team_noise`)."""
    members = np.concatenate([[1], *(each.members for each in rounds)])
    n = float(np.median(members))
    found: float = n ** (0.5 + (BETTER["team_noise"] if n >= LEAST_TEAM else 0.0))
    return found


def presets_of(
    system: str, fields: Sequence[Dimension], point: float = 1.0
) -> list[list[dict[str, float]]]:
    """The groups of presets of a system, and of the dimensions of optional fields. `point`: the
    number of the ladder's rating points that equal one point of the search space."""
    groups: list[Sequence[Mapping[str, float]]] = [*SYSTEMS[system].presets]
    if groups:
        seats = [each for each in fields if each.name.startswith(SEAT)]
        if len(seats) <= MOST_PRESET:
            groups += [[{each.name: part * each.high} for part in OF_SEATS] for each in seats]
        groups += [
            [{each.name: part * each.high} for part in OF_SCALES]
            for each in fields if each.name == SCALE
        ]  # fmt: skip
    unit = {each.name: point**each.points for each in (*WIDE[system], *fields)}
    return [[{name: x * unit[name] for name, x in each.items()} for each in one] for one in groups]


def seats_to_tune(rounds: Iterable[RoundBatch]) -> tuple[str, ...]:
    """The names of the seats whose points are to be tuned on these rounds, in alphabetical order.
    There are none if the rounds name one seat for all, or more than MOST_SEATS."""
    codes: set[int] = set()
    for each in rounds:
        if len(each.seat):  # rounds without any seat say nothing about points
            named = np.maximum.reduceat(each.seat, bounds(each.entries)[:-1]) > 0
            codes.update(np.unique(each.seat[np.repeat(named, each.entries)]).tolist())
    names = sorted(seat_name(code) for code in codes)
    # The first is the empty name, if some entry has no seat. Either way it keeps 0 points.
    return tuple(names[1:]) if len(names) <= MOST_SEATS + 1 else ()


def mean_margin(rounds: Sequence[RoundBatch], by: str = DIFFERENCE) -> float:
    """The mean margin of the rounds of two whose scores agree with their places. It is 0 if these
    are less than half of the rounds."""
    margins = np.concatenate([NO_MARGINS, *(_margins(each, by) for each in rounds)])
    enough = 2 * len(margins) >= max(sum(map(len, rounds)), 1)
    return float(margins.mean()) if enough else 0.0


def _margins(rounds: RoundBatch, by: str) -> Floats:
    first = bounds(rounds.entries)[:-1][rounds.entries == 2]
    if len(rounds.score) == 0 or len(first) == 0:
        return NO_MARGINS
    score, place = rounds.score, rounds.place
    if by != DIFFERENCE:
        score = np.log1p(np.where(score >= 0.0, score, np.nan))
    ahead = np.sign(place[first + 1] - place[first])
    found: Floats = (score[first] - score[first + 1]) * ahead
    return found[found > 0.0]


def start(space: Sequence[Dimension]) -> dict[str, float]:
    """The first guess of each dimension."""
    return {each.name: each.start for each in space}
