"""Names of seats, and the points that a ladder gives for each (`[ladders.L.rating.seats]`).

A *seat* is the place from which an entry plays a round: home, away, white, one side of a map. A
name has 1 to 8 characters of ASCII, so a column of rounds stores it as one number, its bytes in
little-endian order, filled with zeros. An entry without a seat has the number 0.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Floats

SeatCodes = npt.NDArray[np.uint64]  # (E,) the number of each entry's seat.

NO_SEAT = 0
MOST_CHARACTERS = 8
SEAT_CURE = f"give a text of 1 to {MOST_CHARACTERS} printable characters of ASCII"
"""The advice in a message about a name that is not that of a seat."""


def is_seat(name: str) -> bool:
    """Whether a text can be the name of a seat: 1 to 8 printable ASCII characters."""
    return 0 < len(name) <= MOST_CHARACTERS and name.isascii() and name.isprintable()


def seat_code(name: str) -> int:
    """The number of a seat with this name; 0 for the empty text."""
    return int.from_bytes(name.encode("ascii"), "little")


def seat_name(code: int) -> str:
    """The name of the seat with this number; the empty text for 0."""
    return int(code).to_bytes(MOST_CHARACTERS, "little").rstrip(b"\0").decode("ascii")


def codes_of(names: Iterable[str | None]) -> SeatCodes:
    """(E,) the numbers of the seats with these names; None is an entry without a seat."""
    return np.array([seat_code(name or "") for name in names], np.uint64)


def shifts_of(points: Mapping[str, float], seats: SeatCodes) -> Floats:
    """(E,) the points by which the seat of each entry raises its performance; 0 for a seat that
    `points` does not name, and for an entry without a seat."""
    shift = np.zeros(len(seats))
    for name, value in points.items():
        shift[seats == np.uint64(seat_code(name))] = value
    return shift
