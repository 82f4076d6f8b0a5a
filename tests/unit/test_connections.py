"""Which connection is closed to make room for a new one."""

import random
from typing import Any

from stream_rater.runtime.connections import OpenConnections


class Connection:
    def __init__(self, name: str) -> None:
        self.name, self.dropped = name, False

    def drop(self) -> None:
        assert not self.dropped, "at most once"
        self.dropped = True


def connections(most: int = 3, per_address: int = 0) -> tuple[OpenConnections, list[str]]:
    """An empty set, and the causes for which it closes connections."""
    causes: list[str] = []
    return OpenConnections(most, per_address, causes.append), causes


def opened(some: OpenConnections, *names: str) -> list[Any]:
    """New connections of these names; the address is the first letter."""
    new: list[Any] = [Connection(name) for name in names]
    for connection in new:
        some.add(connection, connection.name[0])
    return new


def closed(*some: Connection) -> list[str]:
    return [each.name for each in some if each.dropped]


def test_the_connection_that_was_idle_longest_makes_room() -> None:
    """A busy connection stays. One that becomes idle again is the last in line."""
    there, causes = connections()
    some = opened(there, "a", "b", "c")
    there.busy(some[0])
    there.busy(some[1])
    there.idle(some[1])  # later than c
    new = opened(there, "d")
    assert closed(*some, *new) == ["c"] and len(there) == 3 and causes == ["all"]
    there.remove(some[2])  # as asyncio does
    assert len(there) == 3
    new += opened(there, "e")
    assert closed(*some, *new) == ["b", "c"]


def test_if_all_are_busy_the_new_one_is_closed() -> None:
    """No other is. Once one has been closed there is room."""
    there, _ = connections(2)
    some = opened(there, "a", "b")
    for each in some:
        there.busy(each)
    (new,) = opened(there, "c")
    assert new.dropped and not closed(*some) and len(there) == 2
    there.idle(new)  # a closed one is not counted
    there.busy(new)
    there.remove(some[0])
    (new,) = opened(there, "d")
    assert not new.dropped and len(there) == 2


def test_an_address_makes_room_for_itself() -> None:
    """Beyond its limit an address loses its own oldest connection. Others are not counted."""
    there, causes = connections(10, 2)
    some = opened(there, "b1", "a1", "a2", "c1", "a3")
    assert closed(*some) == ["a1"] and causes == ["address"]
    there.busy(some[2])
    there.busy(some[4])
    (new,) = opened(there, "a4")
    assert new.dropped and closed(*some) == ["a1"]
    there.remove(some[2])
    assert not opened(there, "a5")[0].dropped
    there, _ = connections(10, 1)
    assert closed(*opened(there, "a1", "a2", "a3")) == ["a1", "a2"] and len(there) == 1


def test_the_limits_hold() -> None:
    """Whatever happens in whatever order; nothing is left when all are closed."""
    rng = random.Random(1)
    some, _ = connections(7, 3)
    there: list[Any] = []
    for i in range(3000):
        if rng.random() < 0.4:
            there += opened(some, f"{rng.choice('abcdef')}{i}")
        elif there:
            each = rng.choice(there)
            rng.choice([some.idle, some.busy, some.remove])(each)
        there = [each for each in there if not each.dropped and each in some._address_of]
        assert len(some) == len(there) <= 7
        addresses = [each.name[0] for each in there]
        assert all(addresses.count(one) <= 3 for one in addresses)
    for each in there:
        some.remove(each)
    assert not some._address_of and not some._counts and not some._idle
