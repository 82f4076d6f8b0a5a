"""The transitions that machines take (`tests.simulation.states`). No machine stores its states, so
they are derived from effects, outcomes, reports to the observer, and (shards) positions a and c."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from stream_rater.contract.errors import Trouble
from stream_rater.pipeline.observer import Observer, Traced
from stream_rater.pipeline.ports import Effect, NewProducer, Polled, ReadBeliefs
from stream_rater.pipeline.updater.shard import Shard
from stream_rater.pipeline.updater.updater import Updater
from tests.simulation.states import ESTIMATOR, UPDATER, PartitionState, ShardState, Transition

State = PartitionState | ShardState


class Taken(NamedTuple):
    role: str  # The machine. (The states of both machines have some names in common.)
    source: State | None
    target: State | None
    step: str = ""  # the first step of the protocol in it, if source and target are the same


def _in_diagram(role: str, transitions: Iterable[Transition]) -> Iterator[Taken]:
    for source, target, why in transitions:
        yield Taken(role, source, target, why.split()[0] if source is target else "")


TRANSITIONS = frozenset((*_in_diagram("estimator", ESTIMATOR), *_in_diagram("updater", UPDATER)))
"""The transitions in the diagrams."""


def name_of(taken: Taken) -> str:
    """The name of a transition in tables, such as `updater: settling, then working`."""
    source = "nothing" if taken.source is None else taken.source.name
    if taken.source is taken.target:
        return f"{taken.role}: {words(source)}, step {taken.step}"
    target = "lost" if taken.target is None else words(taken.target.name)
    return f"{taken.role}: {words(source)}, then {target}"


def words(name: str) -> str:
    return name.replace("_", " ").lower()


def surprising(taken: Iterable[Taken]) -> list[Taken]:
    """The transitions that the diagrams do not have. Shards may be lost in any state."""
    return [each for each in taken if each not in TRANSITIONS and each.target is not None]


class StateWatch(Observer):
    """Derives the states of the partitions or shards of one machine."""

    role: str
    opening: State
    starting_over: State

    def __init__(self, taken: set[Taken]) -> None:
        self._taken = taken
        self.states: dict[int, State] = {}  # the state of each owned partition or shard

    def move(self, number: int, target: State | None, step: str = "") -> None:
        """Note a transition. None: the partition or shard is lost."""
        self._taken.add(Taken(self.role, self.states.get(number), target, step))
        if target is None:
            self.states.pop(number, None)
        else:
            self.states[number] = target

    def asked(self, effect: Effect[Any]) -> None:
        """The machine asks for an effect."""

    def got(self, outcome: object, effect: Effect[Any]) -> None:
        """An effect succeeded, and the machine is about to get its outcome."""
        if isinstance(outcome, Polled):
            for number in outcome.lost & self.states.keys():
                self.move(number, None)
            for number in outcome.gained:
                self.move(number, self.opening)
        if isinstance(effect, NewProducer):
            for number in self._in(self.starting_over):
                self.move(number, self.opening)

    def started_over(self, trouble: Trouble) -> None:
        for number in self.states.keys() - set(self._in(self.starting_over)):
            self.move(number, self.starting_over)

    def _in(self, *states: State) -> list[int]:
        """The partitions or shards in one of these states."""
        return [number for number, state in self.states.items() if state in states]


class PartitionWatch(StateWatch):
    role = "estimator"
    opening = PartitionState.OPENING
    starting_over = PartitionState.STARTING_OVER

    def reading_back(self, partitions: Collection[int]) -> None:
        for partition in partitions:
            if self.states.get(partition) is not PartitionState.READING_BACK:
                self.move(partition, PartitionState.READING_BACK)
        for partition in set(self._in(PartitionState.READING_BACK)).difference(partitions):
            self.move(partition, PartitionState.RATING)

    @contextmanager
    def working_on(self, rounds: Iterable[Traced]) -> Iterator[None]:
        partitions = {each.partition for each in rounds}
        yield
        self._loop(partitions, "2")

    def positions(self, next_offsets: Mapping[int, int]) -> None:
        self._loop(next_offsets, "7")

    def seeded(self, ladder: str, partition: int, offset: int, rows: int) -> None:
        self._loop([partition], "22")

    def _loop(self, partitions: Iterable[int], step: str) -> None:
        for partition in partitions:
            if (state := self.states.get(partition)) is not None:
                self.move(partition, state, step)


class ShardWatch(StateWatch):
    """Derives the states of an updater's shards. It passes on what an operator must know."""

    role = "updater"
    opening = ShardState.OPENING
    starting_over = ShardState.STARTING_OVER

    def __init__(self, taken: set[Taken], operator: Observer) -> None:
        super().__init__(taken)
        self._operator = operator
        self.updater: Updater | None = None  # the updater, once it exists

    def asked(self, effect: Effect[Any]) -> None:
        self._look()
        if isinstance(effect, ReadBeliefs):
            for shard in effect.players.keys() & set(self._in(ShardState.REFUSED)):
                self.move(shard, ShardState.OPENING)

    def _look(self) -> None:
        """Note which shards were opened or closed, or have caught up."""
        opened = {} if self.updater is None else self.updater._shards
        for number, state in list(self.states.items()):
            now = _after(state, opened.get(number))
            if now is not state:
                self.move(number, now)

    def beliefs_applied(self, *given: Any, **options: Any) -> None:
        self._look()

    def positions(self, next_offsets: Mapping[int, int]) -> None:
        for shard in next_offsets.keys() & set(self._in(ShardState.WORKING)):
            self.move(shard, ShardState.WORKING, "12")
        self._look()

    def started_over(self, trouble: Trouble) -> None:
        refused = dict.fromkeys(self._in(ShardState.REFUSED), ShardState.REFUSED)
        for shard in refused:
            del self.states[shard]
        super().started_over(trouble)
        self.states |= refused

    def shard_refused(self, shard: int, reason: str, offset: int | None = None) -> None:
        self.move(shard, ShardState.REFUSED)
        self._operator.shard_refused(shard, reason, offset)

    def shard_opened(self, shard: int) -> None:
        self._operator.shard_opened(shard)


def _after(state: State, shard: Shard | None) -> State:
    """The state of a shard that was in this one. None: the updater has not opened it."""
    processed = (ShardState.REFILLING, ShardState.SETTLING, ShardState.WORKING)
    if shard is None:
        return ShardState.OPENING if state in processed else state
    if shard.is_refilling:
        return ShardState.REFILLING
    if shard.is_unsettled and state is not ShardState.WORKING:  # for WORKING until it has published
        return ShardState.SETTLING
    return ShardState.WORKING
