"""A round's players: as texts, or end to end in bytes, each made of the other when it is asked for.

A decoder finds names as bytes and the laboratory looks them up as bytes: texts of millions, which
take longer than both, are for those who show or send them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import Ints

Bytes = npt.NDArray[np.uint8]

NEW_LINE = 10


@dataclass(frozen=True, slots=True)
class LaidOut:
    """Names in UTF-8, and where each starts and ends; between them may be anything."""

    data: Bytes
    starts: Ints
    ends: Ints

    def texts(self) -> list[str]:
        """As texts; none may hold a new line."""
        text = _joined(self.data, self.starts, self.ends).tobytes().decode("utf-8", "surrogatepass")
        return text.split("\n")


@kernel
def put(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Copy data[start:end]; returns where it ends in `out`.

    With unsigned indices: signed ones may count from the end, and looking for that at each byte
    takes five times as long as the copying.
    """
    to, of = np.uint64(at), np.uint64(start)
    for k in range(np.uint64(end - start)):
        out[to + k] = data[of + k]
    return at + end - start


@kernel
def _joined(data: Bytes, starts: Ints, ends: Ints) -> Bytes:
    """The names with new lines between them."""
    size = len(ends) - 1
    for i in range(len(ends)):
        size += ends[i] - starts[i]
    out = np.full(size, NEW_LINE, np.uint8)
    at = 0
    for i in range(len(ends)):
        at = put(out, at, data, starts[i], ends[i]) + 1
    return out


def lay_out(names: Sequence[str]) -> LaidOut:
    """Texts as bytes."""
    data = "\n".join(names).encode("utf-8", "surrogatepass")
    if data.count(b"\n") == len(names) - 1:
        text = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(text == NEW_LINE)
        return LaidOut(text, np.append(0, ends + 1), np.append(ends, len(data)))
    parts = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum([len(part) for part in parts])
    return LaidOut(np.frombuffer(b"".join(parts), np.uint8), np.append(0, ends[:-1]), ends)


class Names:
    """The names of some players, in order."""

    __slots__ = ("_laid_out", "_texts")

    def __init__(self, names: LaidOut | list[str]) -> None:
        self._laid_out = names if isinstance(names, LaidOut) else None
        self._texts = names if isinstance(names, list) else None

    def __len__(self) -> int:
        if self._texts is not None:
            return len(self._texts)
        return len(self.laid_out.ends)

    @property
    def texts(self) -> list[str]:
        """As texts."""
        if self._texts is None:
            self._texts = self.laid_out.texts()
        return self._texts

    @property
    def laid_out(self) -> LaidOut:
        """As bytes."""
        if self._laid_out is None:
            self._laid_out = lay_out(self.texts)
        return self._laid_out
