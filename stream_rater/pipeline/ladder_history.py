"""The history of each ladder: the parameters that rate it, and the offset from which on they hold.

The topic `ladders-noted` has one partition, and nothing is deleted from it. Its records are ladder
events, which the code calls notes. All workers follow the fold of these events in order, so a loss
of the store does not change a history.

- `noted`: the parameters that rate a ladder. The first such event of a ladder counts. The worker
  that is about to rate the ladder's first round writes it, and reads it back before it rates the
  round. A worker also writes it if it starts with announced changes of a ladder.
- `proposed`: a worker proposes how the history continues. Rounds of the ladder from the first new
  offset on wait. A proposal has an id, and the event that decides the proposal names this id. So a
  late decision cannot be mistaken for one about another proposal.
- `confirmed`: the proposal holds. The worker that confirms it has checked, after the proposal was
  in the log, that the ladder's partition had not reached the first new offset. So every round from
  that offset on was reported after the proposal, and nobody has rated it by the former parameters.
- `withdrawn`: the proposal does not hold, because the partition had reached the offset. If a
  proposal is both confirmed and withdrawn, the first of the two events counts.
- `restated`: a `rebuild` has rated all rounds of a ladder by this history. It replaces any earlier
  history.
- `corrected`: corrections of a ladder were accepted, or wait for `corrections-applied`
  (`correction_ports`). If two events give one correction the same state, the first counts.
- `restated` with corrections: a `rebuild` has found these corrections of a ladder in the log. They
  replace all earlier events about the ladder's corrections. If they do not fit into one event, they
  are split over several numbered events, and they count once all of these are read.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

from stream_rater.contract.sizes import MOST_BYTES
from stream_rater.pipeline.corrections.correction_ports import Noted, NotedCorrection

T = TypeVar("T")

History = Sequence[str]
"""Entries `offset:fingerprint`. From that offset on, rounds are rated by the parameters with that
fingerprint."""

OPEN = "not confirmed"
"""Takes the place of the fingerprint of an undecided proposal. No ladders file has it."""


class UnknownNote(ValueError):
    """A ladder event that this release does not understand. The event is refused; its meaning is
    never guessed."""


class AtOdds(Exception):
    """The ladders file contradicts the ladder events, or announces a change too late. The text is
    one line."""


class Note(msgspec.Struct, frozen=True):
    """One ladder event: a record of `ladders-noted`."""

    kind: Literal["noted", "proposed", "confirmed", "withdrawn", "restated", "corrected"]
    histories: dict[str, tuple[str, ...]] = {}
    """The whole history of each ladder."""
    proposal: str = ""
    """The id of the proposal that the event makes or decides; empty for other kinds."""
    corrections: dict[str, tuple[NotedCorrection, ...]] = {}
    """The corrections of each ladder."""
    number: int = 0
    """The number of events before this one in the series that restates one ladder's corrections."""
    left: int = 0
    """The number of events after this one in that series."""


class Proposal(NamedTuple):
    """A proposed history of a ladder. It begins with the history in force, which the code calls
    noted."""

    id: str
    history: tuple[str, ...]


class _AnyNote(msgspec.Struct):
    kind: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Note).decode
_decode_any = msgspec.json.Decoder(_AnyNote).decode

AT_ONCE = 1000
"""The most ladders, or corrections, in one ladder event."""

NOTE_BYTES = MOST_BYTES // 2
"""The most bytes of the ladders, or of the corrections, in one ladder event that has several of
them. So the event has less than MOST_BYTES."""


def notes(kind: str, histories: Mapping[str, History], proposal: str = "") -> list[bytes]:
    """Encode ladder events of one kind about these ladders, as messages."""
    return [
        _encode({"kind": kind, "histories": dict(some), "proposal": proposal})
        for some in _in_turn(list(histories.items()))
    ]


def correction_notes(noted: Noted) -> list[bytes]:
    """Encode ladder events about corrections, as messages."""
    return [
        _encode(Note("corrected", corrections={ladder: tuple(some)}))
        for ladder, of_ladder in noted.items()
        for some in _in_turn(of_ladder)
    ]


def restated_corrections(noted: Noted) -> list[bytes]:
    """Encode ladder events which say that each ladder has these corrections and no others, as
    messages."""
    messages = []
    for ladder, of_ladder in noted.items():
        pieces = [tuple(some) for some in _in_turn(of_ladder)] or [()]
        for number, some in enumerate(pieces):
            left = len(pieces) - 1 - number
            note = Note("restated", corrections={ladder: some}, number=number, left=left)
            messages.append(_encode(note))
    return messages


def _in_turn(all_: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split the items, in order, into runs that each fit into one ladder event."""
    first = size = 0
    for i, each in enumerate(all_):
        own = len(_encode(each))
        if first < i and (i == first + AT_ONCE or size + own > NOTE_BYTES):
            yield all_[first:i]
            first, size = i, 0
        size += own
    if all_:
        yield all_[first:]


class LadderLog:
    """The fold of the ladder events that were read so far."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[str, ...]] = {}
        self._proposed: dict[str, Proposal] = {}
        self.corrections: dict[str, list[NotedCorrection]] = {}
        """The corrections of each ladder, in the order of their events."""
        self._corrected: dict[str, set[tuple[int, int]]] = {}
        """The places (`NotedCorrection.place`) of the corrections of each ladder."""
        self._restated: dict[str, list[Sequence[NotedCorrection]]] = {}
        """By ladder, the corrections in the events that restate them, until the last of these
        events is read."""

    def read(self, message: bytes) -> None:
        """Add a record of the topic. Raises UnknownNote for a ladder event that this release does
        not understand. A record that is not a ladder event of any release is ignored."""
        try:
            note = _decode(message)
        except msgspec.ValidationError:
            self._refuse_unknown(message)
            return
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        for ladder, history in note.histories.items():
            self._add(note.kind, ladder, Proposal(note.proposal, history))
        for ladder, some in note.corrections.items():
            if note.kind == "restated":
                self._restate(ladder, some, note)
            else:
                self._correct(ladder, some)

    def _correct(self, ladder: str, some: Iterable[NotedCorrection]) -> None:
        places = self._corrected.setdefault(ladder, set())
        for each in some:
            if each.place not in places:
                places.add(each.place)
                self.corrections.setdefault(ladder, []).append(each)

    def _restate(self, ladder: str, some: Sequence[NotedCorrection], note: Note) -> None:
        """Add one event of a series that restates a ladder's corrections. It does not count unless
        all earlier events of its series were read. If they were not, a rebuild was stopped between
        them, or Kafka has the event twice."""
        pieces = self._restated.setdefault(ladder, []) if note.number else []
        if note.number != len(pieces):
            return
        pieces.append(some)
        self._restated[ladder] = pieces
        if not note.left:
            del self._restated[ladder]
            self.corrections.pop(ladder, None)  # a new list, so that readers read it from its start
            self._corrected.pop(ladder, None)
            self._correct(ladder, chain.from_iterable(pieces))

    def _refuse_unknown(self, message: bytes) -> None:
        try:
            kind = _decode_any(message).kind
        except msgspec.DecodeError:
            return
        raise UnknownNote(f"a note of kind {kind!r} that this release does not understand")

    def _add(self, kind: str, ladder: str, proposal: Proposal) -> None:
        if kind == "restated":
            self._proposed.pop(ladder, None)
            self._noted[ladder] = proposal.history
            if not proposal.history:  # not in the file any more: as if never rated
                del self._noted[ladder]
        elif kind == "noted":
            self._noted.setdefault(ladder, proposal.history)
        elif kind == "proposed":
            if goes_on(proposal.history, self._noted.get(ladder, ())):
                self._proposed.setdefault(ladder, proposal)
        elif self._proposed.get(ladder) == proposal:
            del self._proposed[ladder]
            if kind == "confirmed":
                self._noted[ladder] = proposal.history

    def noted(self, ladder: str) -> History:
        """The history of a ladder that is in force, without undecided proposals; empty if there is
        none."""
        return self._noted.get(ladder, ())

    @property
    def ladders(self) -> list[str]:
        """All ladders that have a history in force."""
        return list(self._noted)

    def proposed(self, ladder: str) -> Proposal | None:
        """The undecided proposal of a ladder, if there is one."""
        return self._proposed.get(ladder)

    def of(self, ladder: str) -> History:
        """The history by which rounds may be rated. If there is an undecided proposal, an entry
        that no ladders file can have stands from its offset on."""
        noted, proposed = self._noted.get(ladder, ()), self._proposed.get(ladder)
        if proposed is None:
            return noted
        return (*noted, f"{offset_of(proposed.history[len(noted)])}:{OPEN}")


def offset_of(entry: str) -> int:
    """The offset from which on an entry of a history holds."""
    return int(entry.partition(":")[0])


def goes_on(own: History, noted: History) -> bool:
    """Whether `own` begins with all of `noted`, which is not empty, and has further entries."""
    return len(own) > len(noted) > 0 and tuple(own[: len(noted)]) == tuple(noted)


def odds(own: History, noted: History) -> float:
    """The first offset at which `own` contradicts `noted`; infinite if it never does. Further
    entries of `own` are no contradiction."""
    for i, entry in enumerate(noted):
        if i >= len(own):
            return offset_of(entry)
        if own[i] != entry:
            return min(offset_of(own[i]), offset_of(entry))
    return math.inf


def allowed_before(own: History, noted: History) -> float:
    """The offset before which rounds may be rated: the first offset at which the two histories
    differ at all."""
    beyond = offset_of(own[len(noted)]) if len(own) > len(noted) else math.inf
    return min(odds(own, noted), beyond)


def objection(ladder: str, own: History, noted: History) -> str:
    """The reason, in one line, why the file's history `own` contradicts `noted`, the one in the
    ladder events; empty if it does not."""
    offset = odds(own, noted)
    if offset == math.inf:
        return ""
    if any(entry.endswith(OPEN) for entry in noted):
        return (
            f"ladder {ladder!r}: a change from offset {offset:.0f} on was announced and not "
            "confirmed: start a worker with the new ladders file to confirm it, or one with the "
            "old file to withdraw it"
        )
    return (
        f"ladder {ladder!r}: this worker's ladders file and the notes on Kafka differ from offset "
        f"{offset:.0f} on: give all workers the same file, or, to rate all rounds again by this "
        "file, stop all workers and run `stream-rater rebuild --replace`; in development, where no "
        "rating is to be kept, begin afresh with another STREAM_RATER_TOPIC_PREFIX and an empty "
        "Redis"
    )


class NoteStore(Protocol):
    """The log from which ladder events are read and to which they are written."""

    def read(self) -> LadderLog:
        """Return the fold of all ladder events that exist now."""

    def write(self, messages: Sequence[bytes]) -> None:
        """Append ladder events. They are in the log when this returns."""


def announce(
    own: Mapping[str, History], log: NoteStore, end_of: Callable[[str], int], proposal: str
) -> None:
    """Announce the changes in the ladders file of a worker that starts, and confirm them.

    `end_of` returns the end offset of a ladder's partition; `proposal` is an id that was never used
    before. Raises AtOdds if the file contradicts the ladder events, if a change comes too late, or
    if another worker withdrew a change.
    """
    ladder_log = log.read()
    for ladder, history in own.items():
        left = ladder_log.proposed(ladder)
        if left is not None and left.history != tuple(history):
            # The worker that proposed it has died, or it will see that its proposal was withdrawn.
            log.write(notes("withdrawn", {ladder: left.history}, left.id))
    log.write(notes("noted", _to_note(own, ladder_log)))
    ladder_log = log.read()
    for ladder, history in own.items():
        if why := objection(ladder, history, ladder_log.noted(ladder)):
            raise AtOdds(why)
    changed = {each: new for each, new in own.items() if goes_on(new, ladder_log.noted(each))}
    starts = {each: offset_of(new[len(ladder_log.noted(each))]) for each, new in changed.items()}
    _check_in_time(starts, end_of)
    log.write(notes("proposed", changed, proposal))
    ladder_log = log.read()
    proposals = {each: ladder_log.proposed(each) for each in changed}
    try:
        _check_in_time(starts, end_of)
    except AtOdds:
        _decide("withdrawn", proposals, log)
        raise
    _decide("confirmed", proposals, log)
    ladder_log = log.read()
    for ladder, history in changed.items():
        if tuple(ladder_log.noted(ladder)[: len(history)]) != tuple(history):
            raise AtOdds(
                f"ladder {ladder!r}: another worker withdrew this worker's change: start this "
                "worker again"
            )


def _decide(kind: str, proposals: Mapping[str, Proposal | None], log: NoteStore) -> None:
    """Decide these proposals and no others. Any worker may have made them."""
    for ladder, proposal in proposals.items():
        if proposal is not None:
            log.write(notes(kind, {ladder: proposal.history}, proposal.id))


def _to_note(own: Mapping[str, History], ladder_log: LadderLog) -> dict[str, History]:
    """The ladders for which to write a ladder event before their first round: those without an
    event, for which the file has changes. Otherwise a worker with an older file might write its
    event first. For a ladder without changes, the event is written with its first round, and the
    file may be edited until then."""
    return {
        each: history
        for each, history in own.items()
        if len(history) > 1 and not ladder_log.noted(each)
    }


def _check_in_time(starts: Mapping[str, int], end_of: Callable[[str], int]) -> None:
    for ladder, offset in starts.items():
        if offset < (end := end_of(ladder)):
            raise AtOdds(
                f"ladder {ladder!r}: a change from offset {offset} on comes too late, because its "
                f"partition of round-completed already ends at {end}: choose a later offset"
            )
