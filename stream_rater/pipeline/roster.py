"""Players as columns, as thousands are asked for at once; read one by one where few are."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from stream_rater.names import LaidOut, lay_out
from stream_rater.pipeline.ports import Player
from stream_rater.rating.model import Ints


class Roster(Sequence[Player]):
    """(ladder, id) of each player."""

    __slots__ = ("ladder", "ladders", "names")

    def __init__(self, ladders: Sequence[str], ladder: Ints, names: LaidOut) -> None:
        self.ladders = ladders
        self.ladder = ladder
        """(P,) which of those each player is on."""
        self.names = names

    @classmethod
    def of(cls, players: Sequence[Player]) -> "Roster":
        """These players, if they are no roster yet."""
        if isinstance(players, Roster):
            return players
        ladders: dict[str, int] = {}
        ladder = [ladders.setdefault(each, len(ladders)) for each, _ in players]
        names = lay_out([name for _, name in players])
        return cls(list(ladders), np.array(ladder, np.int64), names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __len__(self) -> int:
        return len(self.ladder)

    def __iter__(self) -> Iterator[Player]:
        ladders = [self.ladders[i] for i in self.ladder.tolist()]
        return iter(zip(ladders, self.names.texts(), strict=True))

    @overload
    def __getitem__(self, index: int) -> Player: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Player]: ...
    def __getitem__(self, index: int | slice) -> Player | Sequence[Player]:
        if isinstance(index, slice):
            names = LaidOut(self.names.data, self.names.starts[index], self.names.ends[index])
            return Roster(self.ladders, self.ladder[index], names)
        return next(iter(self[index : index + 1 or None]))
