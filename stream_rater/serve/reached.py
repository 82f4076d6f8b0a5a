"""How far the index is known to have come. Nothing is answered from one that stands before that.

The index may be lost at any moment, as a whole or in part, and Redis may be restored to an older
state. Then a veteran looks like a newcomer. So each question carries these positions, and Redis
compares them with those of the ladder in the very call that gives the answer.
"""

from collections.abc import Sequence


class Incomplete(Exception):
    """The index is not known to be complete, so nothing is answered from it."""

    def __init__(self, why: str = "the index is still being made") -> None:
        super().__init__(f"{why}: try again")


class AbsentLadder(Incomplete):
    """The index has nothing of the ladder."""


class Reached:
    """The positions in `rating-changed` before which the index is known to have everything. It is
    for one thread."""

    def __init__(self) -> None:
        self._all: list[int] | None = None
        self._ladders: dict[str, dict[int, int]] = {}
        """Of ladders that events were about since `noted`: partition to the next offset."""

    def noted(self, positions: Sequence[int]) -> None:
        """Of every ladder the index has everything before these positions, and what it was told to
        have before."""
        self._all = list(positions)
        self._ladders.clear()

    def read(self, ladder: str, partition: int, offset: int) -> None:
        """The ladder's index has an event, and all before it in this partition."""
        own = self._ladders.setdefault(ladder, {})
        own[partition] = max(own.get(partition, 0), offset + 1)

    def knows(self, ladder: str) -> bool:
        """Whether the ladder is known to have an index."""
        return ladder in self._ladders

    def everywhere(self) -> list[int]:
        """What the index has of every ladder. Raises Incomplete while that is unknown."""
        if self._all is None:
            raise Incomplete
        return self._all

    def of(self, ladder: str) -> list[int]:
        """What the index has of a ladder. Raises Incomplete while that is unknown."""
        found = self.everywhere()
        if own := self._ladders.get(ladder):
            found = list(found)
            for partition, at in own.items():
                found[partition] = max(found[partition], at)
        return found
