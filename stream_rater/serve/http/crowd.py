"""Who is connected, and who has to go so that others get in.

A new connection always gets in as long as we wait for the client of another one: for its request,
or for it to take its answer. Of these the one goes for which we have waited longest. A connection
whose question is being answered, or that follows changes, stays.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol


class Closable(Protocol):
    """A connection."""

    def drop(self) -> None:
        """Close it at once."""


class _Address(NamedTuple):
    """The connections of an address."""

    waiting: OrderedDict[Closable, None]
    """Those for whose client we wait, the longest first."""
    working: set[Closable]


class Crowd:
    """All connections. It is for one thread."""

    def __init__(self, most: int, most_of_one: int, made_room: Callable[[str], None]) -> None:
        """`most`: connections; `most_of_one`: those of one address, 0 means no limit. `made_room`
        is told why a connection had to go: `address` or `all`."""
        self._most, self._most_of_one, self._made_room = most, most_of_one, made_room
        self._waiting: OrderedDict[Closable, None] = OrderedDict()
        self._of: dict[Closable, str] = {}
        self._addresses: dict[str, _Address] = {}

    def __len__(self) -> int:
        """How many are connected."""
        return len(self._of)

    def came(self, connection: Closable, address: str) -> None:
        """A client connected. It, or another connection, may be dropped for it."""
        own = self._addresses.setdefault(address, _Address(OrderedDict(), set()))
        self._of[connection] = address
        own.working.add(connection)  # so that it is not the one that goes, while another may
        if self._most_of_one and len(own.waiting) + len(own.working) > self._most_of_one:
            self._drop_one(own.waiting, connection, "address")
        elif len(self._of) > self._most:
            self._drop_one(self._waiting, connection, "all")
        self.waits(connection)

    def waits(self, connection: Closable) -> None:
        """From now on we wait for its client."""
        if (address := self._of.get(connection)) is not None:
            own = self._addresses[address]
            own.working.discard(connection)
            for each in (self._waiting, own.waiting):
                each[connection] = None
                each.move_to_end(connection)

    def works(self, connection: Closable) -> None:
        """From now on its client waits for us."""
        if (address := self._of.get(connection)) is not None:
            own = self._addresses[address]
            own.working.add(connection)
            for each in (self._waiting, own.waiting):
                each.pop(connection, None)

    def left(self, connection: Closable) -> None:
        """It is closed."""
        if (address := self._of.pop(connection, None)) is not None:
            own = self._addresses[address]
            own.working.discard(connection)
            for each in (self._waiting, own.waiting):
                each.pop(connection, None)
            if not own.waiting and not own.working:
                del self._addresses[address]

    def _drop_one(self, waiting: OrderedDict[Closable, None], new: Closable, why: str) -> None:
        """Drop whom we have waited for longest; the new one, if all are at work."""
        self._made_room(why)
        gone = next(iter(waiting), new)
        self.left(gone)
        gone.drop()
