"""The state of the newest rounds: pending, rated, rejected or duplicate.

The key of an outcome is the record's place. An id may have several records; by id, the answer is
about the record with the greatest offset that is no duplicate.

What is known, also of corrections, comes from this process's own posts, the events of
`rating-changed`, and the records of `round-rejected`. It is in memory, and bounded. So the state
says where it may be incomplete: a round whose events may have been published before this process
followed the topic, or that was dropped to keep the bounds.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from stream_rater.columns.sharding import partition_of
from stream_rater.contract.corrections import KINDS
from stream_rater.contract.events import RatingChanged
from stream_rater.contract.record import RecordPlace, RejectedRecord
from stream_rater.contract.seeds import SEEDS
from stream_rater.serve.bodies import RoundChange
from stream_rater.serve.http.event_stream import later
from stream_rater.serve.http.limits import Shares

MOST_ROUNDS = 100_000  # The most rounds whose state is stored; the newest ones are.
MOST_CHANGES = 500_000  # The most changes of players that are stored with them.
MOST_WAITING = 1000
"""The most requests that wait for a round or for the index; half of them may be one address's."""

DUPLICATE = "duplicate-round"
APPLIED = "corrections-applied"
CORRECTED = {"round-voided": "voided", "round-amended": "amended"}  # States by kind of correction.


class RoundState(msgspec.Struct, gc=False):
    """The state of the round in one record. There are many, and none is in a cycle, so the garbage
    collector's search for cycles, during which no answer is given, does not visit them."""

    place: RecordPlace
    ladder: str
    round_id: str
    players: int = 0  # The number of its players; 0 if it was not sent to this process.
    code: str = ""  # Why it was rejected; empty if it was not.
    detail: str = ""
    changes: dict[str, RoundChange] = {}  # What its events say, by player.
    content: int = 0  # Its `validating.content_of`; 0 if it was not sent to this process.
    corrections: dict[int, str] = {}  # The kinds of its corrections, by their offsets.
    corrects: RecordPlace | None = None  # For a correction, the place of its round.

    def why_not(self, *, same: bool) -> str:
        """Why the round of this state is not the one that a client sends, in words; empty if it is.
        `same`: whether the contents are equal."""
        newest = max(self.corrections, default=-1)
        why = "" if same else "has another content"
        if newest >= 0:
            why = f"has a {self.corrections[newest]} at offset {newest}"
        where = f"partition {self.place.partition}, offset {self.place.offset}"
        cure = "if this one is right, send it as a round-amended"
        return why and f"the round with this id, at {where}, {why}: {cure}"


class RoundOutcome(NamedTuple):
    """The state of a round, as it is answered."""

    status: str  # `pending`, `rated`, `rejected`, `duplicate`, `voided` or `amended`.
    state: RoundState
    complete: bool  # Whether `state` certainly has the change of every player.
    corrected_at: int | None = None  # As in the answer (`bodies.RoundStateAnswer`).


class RoundStates:
    """The states of the newest rounds. Without I/O."""

    def __init__(self, most: int = MOST_ROUNDS, most_changes: int = MOST_CHANGES) -> None:
        self._most, self._most_changes = most, most_changes
        self._states: OrderedDict[RecordPlace, RoundState] = OrderedDict()
        self._places: dict[tuple[str, str], tuple[RecordPlace, ...]] = {}
        """The places of the records with an id, in order of offset."""
        self._changes = 0
        self._batched: dict[RecordPlace, str] = {}
        """The kinds of the batched corrections that are about one round and not in force yet."""
        self._corrected: dict[str, int] = {}
        """By ladder, the offset of the newest correction that has changed a rating."""
        self._known_from: list[int] = []  # By partition, the offset from which nothing is missed.
        self._settled: list[int] = []  # By partition, the offset before which all has been read.

    def __len__(self) -> int:
        return len(self._states)

    # --- what becomes known ---

    def posted(
        self, place: RecordPlace, ladder: str, round_id: str, players: int, content: int = 0
    ) -> None:
        """Record that this process has written a round."""
        state = self._state(place, ladder, round_id)
        state.players, state.content = players, content

    def corrected(
        self, place: RecordPlace, ladder: str, kind: str = "", round_id: str = "", *,
        batched: bool = False,
    ) -> None:  # fmt: skip
        """Record a correction, a seed or a reset, which may still be rejected. If its kind is in
        CORRECTED, it is about the last round with its id before it, if that is known. A batched one
        takes effect only once its batch has changed a rating."""
        own = self._state(place, "", "")
        own.ladder = ladder
        for at in reversed(self._places.get((ladder, round_id), ())):
            state = self._states[at]
            if kind in CORRECTED and at < place and not state.code and not own.code:
                own.corrects = at
                if batched:
                    self._batched[place] = kind
                else:
                    state.corrections[place.offset] = kind
                return

    def _applied(self, ladder: str, place: RecordPlace) -> None:
        """Record that the batched corrections of a ladder before a place are in force."""
        for each in [*self._batched]:
            own = self._states[each]
            if own.ladder == ladder and each < place:
                kind, state = self._batched.pop(each), self._states.get(own.corrects or each)
                if state is not None and not own.code:
                    state.corrections[each.offset] = kind

    def changed(self, event: RatingChanged) -> None:
        """Record an event. An event of a correction is no state of a round."""
        if not self._known_from:
            return
        partition = partition_of(event.ladder, len(self._known_from))
        if (of := event.correction) is not None:
            place = RecordPlace(partition, of.offset)
            self.corrected(place, event.ladder, of.cause, of.round_id)
            if of.cause == APPLIED:
                self._applied(event.ladder, place)
            if of.cause not in SEEDS:
                self._corrected[event.ladder] = max(of.offset, self._corrected.pop(event.ladder, 0))
                if len(self._corrected) > self._most:
                    del self._corrected[next(iter(self._corrected))]
            return
        state = self._state(RecordPlace(partition, event.offset), event.ladder, event.round_id)
        self._changes += event.player not in state.changes
        state.changes[event.player] = msgspec.convert(event, RoundChange, from_attributes=True)
        self._drop()

    def rejected(self, record: RejectedRecord) -> None:
        """Record a rejection."""
        state = self._state(record.place, record.ladder, record.round_id)
        state.code, state.detail = record.code, record.detail
        if state.corrects is not None and state.corrects in self._states:
            self._states[state.corrects].corrections.pop(record.place.offset, None)

    def began(self, ends: Sequence[int]) -> None:
        """Record that the process follows both topics. `ends`, those of `round-completed`, were
        read after that: for earlier rounds, events may have been missed."""
        self._known_from = later(ends, self._known_from)

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

    def at(self, place: RecordPlace, ladder: str, round_id: str) -> RoundOutcome | None:
        """The state of the record at a place, which is to have this id; None if it is not known. A
        correction, a seed and a reset have their kind for an id."""
        state = self._states.get(place)
        if state is not None:
            rejected = state.code and not state.round_id  # the record does not say, or is no round
            stands_for = "" if round_id in KINDS or round_id in SEEDS else round_id
            same = (state.ladder, state.round_id) in ((ladder, round_id), (ladder, stands_for))
            return self._outcome(state) if same or rejected else None
        known = place.partition < len(self._known_from)
        if not known or place.offset < self._known_from[place.partition]:
            return None
        return self._outcome(RoundState(place, ladder, round_id))

    def of(self, ladder: str, round_id: str) -> RoundOutcome | None:
        """The state of a round by its id; None if it is not known."""
        states = [self._states[place] for place in self._places.get((ladder, round_id), ())]
        others = [each for each in states if each.code != DUPLICATE] or states
        return self._outcome(others[-1]) if others else None

    def standing(self, ladder: str, round_id: str) -> RoundState | None:
        """The newest record with an id that is not rejected; None if none is known."""
        newest_first = reversed(self._places.get((ladder, round_id), ()))
        states = (self._states[place] for place in newest_first)
        return next((each for each in states if not each.code), None)

    # --- below ---

    def _outcome(self, state: RoundState) -> RoundOutcome:
        if state.code:
            status = "duplicate" if state.code == DUPLICATE else "rejected"
            return RoundOutcome(status, state, complete=True)
        partition, offset = state.place
        settled_to = self._settled[partition] if partition < len(self._settled) else 0
        newest, decided = max(state.corrections, default=-1), self._corrected.get(state.ladder, -1)
        corrected = max(newest, decided) if max(newest, decided) > offset else None
        if newest >= max(settled_to, decided + 1):
            return RoundOutcome("pending", state, complete=False)
        if newest >= 0:
            done = CORRECTED[state.corrections[newest]]
            return RoundOutcome(done, state, done == "voided", corrected)
        if state.players and len(state.changes) == state.players:
            return RoundOutcome("rated", state, True, corrected)
        settled = offset < settled_to
        known = partition < len(self._known_from) and offset >= self._known_from[partition]
        return RoundOutcome("rated" if settled else "pending", state, settled and known, corrected)

    def _state(self, place: RecordPlace, ladder: str, round_id: str) -> RoundState:
        state = self._states.get(place)
        if state is None:
            state = self._states[place] = RoundState(place, "", "")
        if ladder and round_id and not state.round_id:
            name = state.ladder, state.round_id = ladder, round_id
            self._places[name] = tuple(sorted([*self._places.get(name, ()), place]))
        self._drop()
        return state

    def _drop(self) -> None:
        """Drop the oldest states until the bounds are kept, except the newest one."""
        while (kept := len(self._states)) > 1 and (
            kept > self._most or self._changes > self._most_changes
        ):
            place, state = self._states.popitem(last=False)
            self._changes -= len(state.changes)
            self._batched.pop(place, None)
            name = state.ladder, state.round_id
            known = self._places.pop(name, ())
            if left := tuple(each for each in known if each != place):
                self._places[name] = left
            if (p := place.partition) < len(self._known_from):
                self._known_from[p] = max(self._known_from[p], place.offset + 1)


class Waiting:
    """Lets requests wait until something has changed. It is for one event loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._shares = Shares(MOST_WAITING, "requests wait here: ask without `wait`")
        self.count = 0  # The number of requests that wait.
        self.wanted = threading.Event()  # Set while a request waits. A thread may wait for it.

    def notify(self) -> None:
        """Wake all requests that wait."""
        self._changed.set()
        self._changed = asyncio.Event()

    def kick(self) -> None:
        """Let whatever changes be looked at once, though no request waits."""
        self.wanted.set()
        if not self.count:
            self.wanted.clear()

    async def until(self, deadline_s: float) -> bool:
        """Wait until the next change. Returns whether it came before the deadline, which is a time
        of the event loop. Raises Refused if too many requests wait."""
        with self._shares.taking(1):
            self.count += 1
            self.wanted.set()
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._changed.wait()
                return True
            except TimeoutError:
                return False
            finally:
                self.count -= 1
                if not self.count:
                    self.wanted.clear()
