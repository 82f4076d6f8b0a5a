"""The history of each ladder: from which offset on it is rated by which parameters.

The topic `ladders-noted` has one partition, and nothing is deleted from it. Its records are notes.
All workers go by the fold of the notes in order, so that no loss of the store affects it.

- `noted`: how a ladder is rated. The first note of a ladder counts. The worker that is about to
  rate the ladder's first round writes it, and reads it back before it rates the round. A worker
  that starts with announced changes of a ladder writes it, too.
- `proposed`: the history is to continue like this. Rounds of the ladder from the first new offset
  on wait. A proposal has an id, and the note that decides it names the id, so that a late decision
  cannot be about another proposal.
- `confirmed`: the proposal holds. The worker that confirms has checked, after the proposal was in
  the log, that the ladder's partition had not reached that offset. So every round from that offset
  on was reported after the proposal, and nobody has rated it by the former parameters.
- `withdrawn`: the proposal does not hold, because the partition had reached the offset. Of
  `confirmed` and `withdrawn` the first note counts.
- `restated`: a `rebuild` has rated all rounds of a ladder by this history, whatever held before.
- `corrected`: corrections of a ladder were accepted, or wait for `corrections-applied`
  (`correction_ports`). Of two notes of one correction that say the same of it, the first counts.
- `restated` with corrections: a `rebuild` has found these corrections of a ladder in the log. They
  replace all that was noted of its corrections before. If they do not fit into one note, they come
  in several numbered ones, and count once all of them are read.
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
"""Entries `offset:fingerprint`: from that offset on, rounds are rated by the parameters with that
fingerprint."""

OPEN = "not confirmed"
"""Takes the place of the fingerprint of an undecided proposal. No ladders file has it."""


class UnknownNote(ValueError):
    """A note that this release does not understand. It is refused, never guessed."""


class AtOdds(Exception):
    """The ladders file contradicts the notes, or announces a change too late. The text is one
    line."""


class Note(msgspec.Struct, frozen=True):
    """One record of `ladders-noted`."""

    kind: Literal["noted", "proposed", "confirmed", "withdrawn", "restated", "corrected"]
    histories: dict[str, tuple[str, ...]] = {}
    """The whole history of each ladder."""
    proposal: str = ""
    """The id of the proposal that the note makes or decides; empty for other kinds."""
    corrections: dict[str, tuple[NotedCorrection, ...]] = {}
    """By ladder."""
    number: int = 0
    """Of the notes that restate one ladder's corrections, how many come before this one."""
    left: int = 0
    """And how many come after it."""


class Proposal(NamedTuple):
    """A proposed history of a ladder, which begins with the noted one."""

    id: str
    history: tuple[str, ...]


class _AnyNote(msgspec.Struct):
    kind: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Note).decode
_decode_any = msgspec.json.Decoder(_AnyNote).decode

AT_ONCE = 1000
"""The most ladders, or corrections, in one note."""

NOTE_BYTES = MOST_BYTES // 2
"""The most bytes of the ladders, or of the corrections, in one note that has several. So the note
has less than MOST_BYTES."""


def notes(kind: str, histories: Mapping[str, History], proposal: str = "") -> list[bytes]:
    """Encode notes of one kind about these ladders, as messages."""
    return [
        _encode({"kind": kind, "histories": dict(some), "proposal": proposal})
        for some in _in_turn(list(histories.items()))
    ]


def correction_notes(noted: Noted) -> list[bytes]:
    """Encode notes of corrections, as messages."""
    return [
        _encode(Note("corrected", corrections={ladder: tuple(some)}))
        for ladder, of_ladder in noted.items()
        for some in _in_turn(of_ladder)
    ]


def restated_corrections(noted: Noted) -> list[bytes]:
    """Encode notes which say that a ladder has these corrections and no others, as messages."""
    messages = []
    for ladder, of_ladder in noted.items():
        pieces = [tuple(some) for some in _in_turn(of_ladder)] or [()]
        for number, some in enumerate(pieces):
            left = len(pieces) - 1 - number
            note = Note("restated", corrections={ladder: some}, number=number, left=left)
            messages.append(_encode(note))
    return messages


def _in_turn(all_: Sequence[T]) -> Iterator[Sequence[T]]:
    """All of these in order, as many at a time as one note may have."""
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
    """The fold of the notes that were read so far."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[str, ...]] = {}
        self._proposed: dict[str, Proposal] = {}
        self.corrections: dict[str, list[NotedCorrection]] = {}
        """By ladder, in the order of their notes."""
        self._corrected: dict[str, set[tuple[int, int]]] = {}
        """The places of these."""
        self._restated: dict[str, list[Sequence[NotedCorrection]]] = {}
        """By ladder, its corrections in the notes that restate them, until the last of these is
        read."""

    def read(self, message: bytes) -> None:
        """Add a record of the topic. Raises UnknownNote. A record that is no note of any release is
        ignored."""
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
        """A note without those before it does not count: a rebuild was stopped between them, or
        Kafka has the note twice."""
        pieces = self._restated.setdefault(ladder, []) if note.number else []
        if note.number != len(pieces):
            return
        pieces.append(some)
        self._restated[ladder] = pieces
        if not note.left:
            del self._restated[ladder]
            self.corrections.pop(ladder, None)  # another list: readers look at all of it again
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
            if not proposal.history:  # the file has it no more: as if it had never been rated
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
        """The noted history of a ladder, without undecided proposals; empty if there is none."""
        return self._noted.get(ladder, ())

    @property
    def ladders(self) -> list[str]:
        """All ladders that have a noted history."""
        return list(self._noted)

    def proposed(self, ladder: str) -> Proposal | None:
        """The undecided proposal of a ladder, if there is one."""
        return self._proposed.get(ladder)

    def of(self, ladder: str) -> History:
        """The history that rounds may be rated by. From the offset of an undecided proposal on, it
        has an entry that no ladders file can have."""
        noted, proposed = self.noted(ladder), self.proposed(ladder)
        if proposed is None:
            return noted
        return (*noted, f"{offset_of(proposed.history[len(noted)])}:{OPEN}")


def offset_of(entry: str) -> int:
    """The offset from which on an entry holds."""
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
    """The offset before which rounds may be rated: the first at which the two histories differ at
    all."""
    beyond = offset_of(own[len(noted)]) if len(own) > len(noted) else math.inf
    return min(odds(own, noted), beyond)


def objection(ladder: str, own: History, noted: History) -> str:
    """Why the file's history `own` contradicts the noted one, in one line; empty if it does not."""
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
    """The log in which notes are read and written."""

    def read(self) -> LadderLog:
        """The fold of all notes that exist now."""

    def write(self, messages: Sequence[bytes]) -> None:
        """Append notes. They are in the log when this returns."""


def announce(
    own: Mapping[str, History], log: NoteStore, end_of: Callable[[str], int], proposal: str
) -> None:
    """Announce the changes in a worker's ladders file when it starts, and have them confirmed.

    `end_of` returns the end offset of a ladder's partition; `proposal` is an id that was never used
    before. Raises AtOdds if the file contradicts the notes, or if a change comes too late.
    """
    ladder_log = log.read()
    for ladder, history in own.items():
        left = ladder_log.proposed(ladder)
        if left is not None and left.history != tuple(history):
            # The worker that proposed it has died, or will see that it was withdrawn.
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
    """Decide these proposals, whichever worker made them, and no others."""
    for ladder, proposal in proposals.items():
        if proposal is not None:
            log.write(notes(kind, {ladder: proposal.history}, proposal.id))


def _to_note(own: Mapping[str, History], ladder_log: LadderLog) -> dict[str, History]:
    """The ladders to note before their first round: those without a note whose file has changes.
    Otherwise a worker with an older file might note them first. A ladder without changes is noted
    with its first round and may be edited until then."""
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
