"""The events that are made of a table: their form as JSON lines, and a file that stores many."""

import mmap
import tempfile
from array import array

import msgspec

from stream_rater.tables.times import Moment


class EntryLine(msgspec.Struct, omit_defaults=True, gc=False):
    """An entry of an event. The fast reader takes fields in this order."""

    player: str | None = None
    team: tuple[str, ...] | None = None
    rank: int | None = None
    dnf: bool = False
    shares: tuple[float, ...] | None = None
    score: int | float | None = None
    seat: str | None = None


class EventLine(msgspec.Struct, omit_defaults=True, gc=False):
    """A `round-completed` event."""

    round_id: str
    ladder: str
    completed_at: str
    standings: list[EntryLine]
    weight: int | float = 1


encode = msgspec.json.Encoder().encode


def entry(
    players: tuple[str, ...], rank: int | None, score: int | float | None = None,
    seat: str | None = None, shares: tuple[float, ...] | None = None,
) -> EntryLine:  # fmt: skip
    """An entry. `rank`: None for an entry that did not finish."""
    alone = players[0] if len(players) == 1 else None
    team = None if alone is not None else players
    return EntryLine(alone, team, rank, rank is None, shares, score, seat)


class Made(msgspec.Struct):
    """An event that was made."""

    moment: Moment
    line: int
    """The number of its first row."""
    text: bytes
    """The event as JSON, without a line end."""


class Spool:
    """A temporary file of many short texts, which can be read in any order once it is sealed."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object lives
        self._ends = array("q", [0])
        self._view: mmap.mmap | bytes = b""

    def append(self, text: bytes) -> None:
        """Add a text."""
        self._file.write(text)
        self._ends.append(self._ends[-1] + len(text))

    def seal(self) -> None:
        """End the writing, and begin the reading."""
        self._file.flush()
        if self._ends[-1]:
            self._view = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> bytes:
        return self._view[self._ends[number] : self._ends[number + 1]]
