"""The state of the newest rounds: pending, rated, rejected or duplicate.

The key of an outcome is the record's place. An id may have several records; by id, the answer is
about the record with the greatest offset that is no duplicate.

What is known comes from this process's own posts, the events of `rating-changed`, and the records
of `round-rejected`. It is in memory, and bounded. So the state says where it may be incomplete: a
round whose events may have been published before this process followed the topic, or that was
dropped to keep the bounds.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from stream_rater.columns.sharding import partition_of
from stream_rater.contract.events import RatingChanged
from stream_rater.contract.submissions import Place, RejectedRecord

MOST_ROUNDS = 100_000
"""The most rounds whose state is stored; the newest ones are."""
MOST_CHANGES = 1_000_000
"""The most changes of players that are stored with them."""

DUPLICATE = "duplicate-round"


class RoundState(msgspec.Struct, gc=False):
    """The state of the round in one record. There are many, and no cycle of them, so the search for
    cycles does not visit them: that would stop all answers for its time."""

    place: Place
    ladder: str
    round_id: str
    players: int = 0
    """The number of its players; 0 if it was not sent to this process."""
    code: str = ""
    """Why it was rejected; empty if it was not."""
    detail: str = ""
    changes: dict[str, RatingChanged] = {}
    """Its events, by player."""


class Outcome(NamedTuple):
    """The state of a round, as it is answered."""

    status: str
    """`pending`, `rated`, `rejected` or `duplicate`."""
    state: RoundState
    complete: bool
    """Whether `state` has the change of every player. If it has not, the process cannot know the
    others."""


class RoundStates:
    """The states of the newest rounds. Without I/O."""

    def __init__(self, most: int = MOST_ROUNDS, most_changes: int = MOST_CHANGES) -> None:
        self._most, self._most_changes = most, most_changes
        self._states: OrderedDict[Place, RoundState] = OrderedDict()
        self._places: dict[tuple[str, str], tuple[Place, ...]] = {}
        """The places of the records with an id, in order of offset."""
        self._changes = 0
        self._known_from: list[int] = []
        """By partition, the offset from which on nothing can be missing."""
        self._settled: list[int] = []
        """By partition, the offset before which every event and rejection has been read."""

    def __len__(self) -> int:
        return len(self._states)

    # --- what becomes known ---

    def posted(self, place: Place, ladder: str, round_id: str, players: int) -> None:
        """Record that this process has written a round."""
        self._state(place, ladder, round_id).players = players

    def changed(self, event: RatingChanged) -> None:
        """Record an event. An event of a correction is no state of a round."""
        if event.correction is not None or not self._known_from:
            return
        partition = partition_of(event.ladder, len(self._known_from))
        state = self._state(Place(partition, event.offset), event.ladder, event.round_id)
        if event.player not in state.changes:
            self._changes += 1
        state.changes[event.player] = event
        self._drop()

    def rejected(self, record: RejectedRecord) -> None:
        """Record a rejection."""
        state = self._state(record.place, record.ladder, record.round_id)
        state.code, state.detail = record.code, record.detail

    def began(self, ends: Sequence[int]) -> None:
        """Record that the process follows both topics from now on. `ends` are the ends of
        `round-completed`, read after that: earlier rounds may have earlier events."""
        self._known_from = [max(pair) for pair in zip(ends, self._padded(len(ends)), strict=True)]

    @property
    def begun(self) -> bool:
        """Whether `began` was called."""
        return bool(self._known_from)

    def settled(self, offsets: Sequence[int]) -> None:
        """Record that everything about the records before these offsets has been read."""
        self._settled = list(offsets)

    @property
    def unsettled(self) -> bool:
        """Whether the newest round may still be pending."""
        if not self._states:
            return False
        return self._outcome(self._states[next(reversed(self._states))]).status == "pending"

    # --- what is asked ---

    def at(self, place: Place, ladder: str, round_id: str) -> Outcome | None:
        """The state of the record at a place, which is to have this id; None if it is not known."""
        state = self._states.get(place)
        if state is not None:
            has = state.ladder, state.round_id
            return self._outcome(state) if has in ((ladder, round_id), ("", "")) else None
        known = place.partition < len(self._known_from)
        if not known or place.offset < self._known_from[place.partition]:
            return None
        return self._outcome(RoundState(place, ladder, round_id))

    def of(self, ladder: str, round_id: str) -> Outcome | None:
        """The state of a round by its id; None if it is not known."""
        states = [self._states[place] for place in self._places.get((ladder, round_id), ())]
        others = [each for each in states if each.code != DUPLICATE]
        newest = (others or states)[-1:]
        return self._outcome(newest[0]) if newest else None

    def first_of(self, ladder: str, round_id: str) -> Place | None:
        """The place of the newest record with an id that is neither rejected nor a duplicate; None
        if none is known."""
        states = [self._states[place] for place in self._places.get((ladder, round_id), ())]
        return next((each.place for each in reversed(states) if not each.code), None)

    # --- below ---

    def _outcome(self, state: RoundState) -> Outcome:
        if state.code:
            status = "duplicate" if state.code == DUPLICATE else "rejected"
            return Outcome(status, state, complete=True)
        if state.players and len(state.changes) == state.players:
            return Outcome("rated", state, complete=True)
        partition, offset = state.place
        settled = partition < len(self._settled) and offset < self._settled[partition]
        known = partition < len(self._known_from) and offset >= self._known_from[partition]
        return Outcome("rated" if settled else "pending", state, complete=settled and known)

    def _state(self, place: Place, ladder: str, round_id: str) -> RoundState:
        state = self._states.get(place)
        if state is None:
            state = self._states[place] = RoundState(place, "", "")
        if ladder and round_id and not state.round_id:
            state.ladder, state.round_id = ladder, round_id
            name = ladder, round_id
            known = self._places.get(name)
            self._places[name] = tuple(sorted([*known, place])) if known else (place,)
        self._drop()
        return state

    def _drop(self) -> None:
        """Drop the oldest states until the bounds are kept, except the newest one."""
        while len(self._states) > 1 and (
            len(self._states) > self._most or self._changes > self._most_changes
        ):
            place, state = self._states.popitem(last=False)
            self._changes -= len(state.changes)
            name = state.ladder, state.round_id
            known = self._places.get(name, ())
            if left := tuple(each for each in known if each != place):
                self._places[name] = left
            elif known:
                del self._places[name]
            if place.partition < len(self._known_from):
                first = max(self._known_from[place.partition], place.offset + 1)
                self._known_from[place.partition] = first

    def _padded(self, count: int) -> list[int]:
        return [*self._known_from, *([0] * count)][:count]
