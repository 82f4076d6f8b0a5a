"""Who goes so that a new connection gets in."""

import random

from stream_rater.serve.http.crowd import Crowd


class Connection:
    """One that tells the crowd when it is dropped, as asyncio does a moment later."""

    def __init__(self, name: str) -> None:
        self.name, self.dropped = name, False

    def drop(self) -> None:
        """As the crowd asks."""
        assert not self.dropped
        self.dropped = True


def a_crowd(most: int = 3, most_of_one: int = 0) -> tuple[Crowd, list[str]]:
    causes: list[str] = []
    return Crowd(most, most_of_one, causes.append), causes


def came(crowd: Crowd, *names: str) -> list[Connection]:
    """Connections of these names; the address is the first letter."""
    found = [Connection(name) for name in names]
    for each in found:
        crowd.came(each, each.name[0])
    return found


def gone(*some: Connection) -> list[str]:
    return [each.name for each in some if each.dropped]


def test_the_one_that_was_idle_longest_makes_room() -> None:
    """Not one whose question is being answered; to wait again begins anew."""
    crowd, causes = a_crowd()
    some = came(crowd, "a", "b", "c")
    crowd.works(some[0])
    crowd.works(some[1])
    crowd.waits(some[1])  # later than c
    new = came(crowd, "d")
    assert gone(*some, *new) == ["c"] and len(crowd) == 3 and causes == ["all"]
    crowd.left(some[2])  # asyncio tells it, too
    assert len(crowd) == 3
    new += came(crowd, "e")
    assert gone(*some, *new) == ["b", "c"]


def test_where_all_are_at_work_the_new_one_goes() -> None:
    """And nobody else; once one has left there is room."""
    crowd, _ = a_crowd(2)
    some = came(crowd, "a", "b")
    for each in some:
        crowd.works(each)
    (new,) = came(crowd, "c")
    assert new.dropped and not gone(*some) and len(crowd) == 2
    crowd.waits(new), crowd.works(new)  # of one that has gone, nothing is noted
    crowd.left(some[0])
    (new,) = came(crowd, "d")
    assert not new.dropped and len(crowd) == 2


def test_an_address_makes_room_for_itself() -> None:
    """Beyond its limit its own oldest goes, whoever else is idle; others are not counted."""
    crowd, causes = a_crowd(10, 2)
    some = came(crowd, "b1", "a1", "a2", "c1", "a3")
    assert gone(*some) == ["a1"] and causes == ["address"]
    crowd.works(some[2]), crowd.works(some[4])
    (new,) = came(crowd, "a4")
    assert new.dropped and gone(*some) == ["a1"]
    crowd.left(some[2])
    assert not came(crowd, "a5")[0].dropped


def test_a_limit_of_one() -> None:
    """The new one takes the place of the old one."""
    crowd, _ = a_crowd(10, 1)
    some = came(crowd, "a1", "a2", "a3")
    assert gone(*some) == ["a1", "a2"] and len(crowd) == 1


def test_never_more_than_there_may_be() -> None:
    """Whatever happens in whatever order, and nothing is left when all have gone."""
    rng = random.Random(1)
    crowd, _ = a_crowd(7, 3)
    there: list[Connection] = []
    for i in range(3000):
        there = [each for each in there if not each.dropped]
        if rng.random() < 0.4:
            there += came(crowd, f"{rng.choice('abcdef')}{i}")
        elif there:
            each = rng.choice(there)
            rng.choice([crowd.waits, crowd.works, crowd.left])(each)
        there = [each for each in there if not each.dropped and each in crowd._of]
        assert len(crowd) == len(there) <= 7
        addresses = [each.name[0] for each in there]
        assert all(addresses.count(one) <= 3 for one in addresses)
    for each in there:
        crowd.left(each)
    assert not crowd._of and not crowd._addresses and not crowd._waiting
