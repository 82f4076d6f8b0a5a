"""The search spaces of `tune`: the hyperparameters of each system, their ranges and first guesses.

Each system has its own in `rating.systems`. The name of a dimension is the name of a field of the
configuration, or a name that the system's `from_dimensions` translates.

Most systems, Elo-MMR among them, depend on ratios only. The predictions stay the same if all
parameters in points are doubled (initial_sigma, sigma_limit, beta, drift), or if all ratings are
shifted. So initial_sigma is fixed while the others vary. initial_mu varies only where a system has
fixed levels of ratings. Kerby's systems have no sigma: their `scale` is fixed as in chess, and the
learning rate varies.

Where the rounds name seats, the points of each seat are one more dimension, `seats.NAME`. Only the
differences between the seats of a round matter. So if every entry has a seat, the points of one
name are redundant. The first name by alphabet then keeps 0 points.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from stream_rater.columns.ranges import bounds
from stream_rater.rating.parameters import SYSTEMS, RatingConfig, from_builtins
from stream_rater.rating.seats import seat_name
from stream_rater.rating.systems.dimension import Dimension
from stream_rater.rounds.batch import RoundBatch

SPACES: dict[str, tuple[Dimension, ...]] = {name: each.space for name, each in SYSTEMS.items()}
"""The dimensions of each system."""

WIDE = {name: (*each.space, *each.more_space) for name, each in SYSTEMS.items()}
"""The dimensions that `tune` searches for the rounds of a file."""


SEAT = "seats."
"""The name of a seat's dimension begins with this."""
MOST_SEATS = 8
"""If the rounds name more seats than this, no points are searched: they are no seats."""


def configuration(system: str, values: Mapping[str, float]) -> RatingConfig:
    """The configuration of a system with these values of its dimensions."""
    own = {name: value for name, value in values.items() if not name.startswith(SEAT)}
    table = {"system": system, **SYSTEMS[system].from_dimensions(own)}
    if seats := seats_of(values):
        table["seats"] = seats
    return from_builtins(table)


def seats_of(values: Mapping[str, float]) -> dict[str, float]:
    """The points by seat, from the values of all dimensions."""
    return {
        name.removeprefix(SEAT): value for name, value in values.items() if name.startswith(SEAT)
    }


def seat_dimensions(names: Sequence[str]) -> tuple[Dimension, ...]:
    """The dimensions of the points of these seats."""
    return tuple(
        Dimension(SEAT + name, -300.0, 300.0, 0.0, "linear", points=1, parameter="seats")
        for name in names
    )


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


def start(space: Sequence[Dimension]) -> dict[str, float]:
    """The first guess of each dimension."""
    return {each.name: each.start for each in space}
