"""The history of each ladder: the parameters that rate it, and the offset from which on they hold.

The topic `ladders-noted` has one partition, and nothing is deleted from it. Its records are ladder
events. All workers follow the fold of these events in order, so a loss
of the store does not change a history.

- `noted`: the parameters that rate a ladder from offset 0 on. The first such event of a ladder
  counts. The worker that is about to rate the ladder's first round, or to finish a record of it
  that is not rated, writes it, and reads it back before. If no ladders file knows the ladder, the
  event says so (`unknown`). A worker also writes it before it proposes a change.
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
  (`ports.RecordedCorrection`). If two events give one correction the same state, the first counts.
- `restated` with `replayed`: a `rebuild` of a log that had lost records took all rounds before
  these offsets. Parts and events that name lower ones may be of lost rounds.
- `restated` with corrections: a `rebuild` has found these corrections of a ladder in the log. They
  replace all earlier events about the ladder's corrections. If they do not fit into one event, they
  are split over several numbered events, and they count once all of these are read.
"""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

from stream_rater.config.ladders import FILE_LIMITS, NOT_KNOWN
from stream_rater.contract.events import MOST_BYTES
from stream_rater.pipeline.ports import CorrectionsByLadder, RecordedCorrection

T = TypeVar("T")

History = Sequence[str]
"""Entries `offset:fingerprint`. From that offset on, rounds are rated by the parameters with that
fingerprint, or rejected if it is NOT_KNOWN. The first entry is that of offset 0."""

UNKNOWN = (f"0:{NOT_KNOWN}",)  # The history of a ladder that no ladders file knows.
MOST_UNKNOWN = 10_000
"""The most ladders about which the log says that no file knows them. Records of any further such
ladder are rejected without an event, because producers may send any number of names."""

UNCONFIRMED = "not confirmed"
"""Takes the place of the fingerprint of an undecided proposal. No ladders file has it."""


class UnknownLadderEvent(ValueError):
    """A ladder event that this release does not understand. Its meaning is never guessed."""


class LadderContradiction(Exception):
    """The ladders file contradicts the ladder events, or its change comes too late or was
    withdrawn. The text is one line."""


class LadderEvent(msgspec.Struct, frozen=True):
    """One ladder event: a record of `ladders-noted`."""

    kind: Literal["noted", "proposed", "confirmed", "withdrawn", "restated", "corrected"]
    histories: dict[str, tuple[str, ...]] = {}  # The whole history of each ladder.
    proposal: str = ""
    """The id of the proposal that the event makes or decides; empty for other kinds."""
    corrections: dict[str, tuple[RecordedCorrection, ...]] = {}  # The corrections of each ladder.
    number: int = 0
    """The number of events before this one in the series that restates one ladder's corrections."""
    left: int = 0  # The number of events after this one in that series.
    unknown: tuple[str, ...] = ()
    """The ladders that no ladders file knows. Older releases ignore this field and the next."""
    limits: str = ""
    """The limits of size and depth by which records are rejected whose ladder is not known."""
    replayed: tuple[int, ...] = ()
    """By partition of `round-completed`, the offset before which a rebuild of a log that had lost
    records took all rounds. Only later rebuilds need it. Older releases do not know it."""


class Proposal(NamedTuple):
    """A proposed history of a ladder. It begins with the history in force."""

    id: str
    history: tuple[str, ...]


class _AnyLadderEvent(msgspec.Struct):
    kind: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LadderEvent).decode
_decode_any = msgspec.json.Decoder(_AnyLadderEvent).decode

AT_ONCE = 1000  # The most ladders, or corrections, in one ladder event.

EVENT_BYTES = MOST_BYTES // 2
"""The most bytes of the ladders, or of the corrections, in one ladder event that has several of
them. So the event has less than MOST_BYTES."""


def encode_histories(
    kind: str, histories: Mapping[str, History], proposal: str = ""
) -> list[bytes]:
    """Encode ladder events of one kind about these ladders, as messages. A history that begins with
    UNKNOWN is written without it, as older releases do."""
    messages = []
    for chunk in _in_chunks(list(histories.items())):
        of = {ladder: tuple(history) for ladder, history in chunk}
        (limits,) = of.pop(FILE_LIMITS, ("",))
        unknown = [ladder for ladder, history in of.items() if history == UNKNOWN]
        written = {ladder: history[history[:1] == UNKNOWN :] for ladder, history in of.items()}
        if kind != "restated":  # which deletes what older releases know of a ladder
            written = {ladder: history for ladder, history in written.items() if history}
        event = {"kind": kind, "histories": written, "proposal": proposal}
        if unknown:
            event["unknown"] = unknown
        if limits:
            event["limits"] = limits.removeprefix("0:")
        messages.append(_encode(event))
    return messages


def encode_corrections(corrections: CorrectionsByLadder) -> list[bytes]:
    """Encode ladder events about corrections, as messages."""
    return [
        _encode(LadderEvent("corrected", corrections={ladder: tuple(chunk)}))
        for ladder, of_ladder in corrections.items()
        for chunk in _in_chunks(of_ladder)
    ]


def encode_restated_corrections(corrections: CorrectionsByLadder) -> list[bytes]:
    """Encode events which say that each ladder has these corrections and no others, as messages."""
    messages = []
    for ladder, of_ladder in corrections.items():
        pieces = [tuple(chunk) for chunk in _in_chunks(of_ladder)] or [()]
        for number, chunk in enumerate(pieces):
            left = len(pieces) - 1 - number
            event = LadderEvent("restated", corrections={ladder: chunk}, number=number, left=left)
            messages.append(_encode(event))
    return messages


def encode_replayed(offsets: Sequence[int]) -> list[bytes]:
    """Encode the ladder event of a rebuild of a log that had lost records, as messages."""
    return [_encode(LadderEvent("restated", replayed=tuple(offsets)))]


def _in_chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split the items, in order, into runs that each fit into one ladder event."""
    first = size = 0
    for i, each in enumerate(items):
        item_bytes = len(_encode(each))
        if first < i and (i == first + AT_ONCE or size + item_bytes > EVENT_BYTES):
            yield items[first:i]
            first, size = i, 0
        size += item_bytes
    if items:
        yield items[first:]


class LadderLog:
    """The fold of the ladder events that were read so far."""

    def __init__(self) -> None:
        self._in_force: dict[str, tuple[str, ...]] = {}
        self._proposed: dict[str, Proposal] = {}
        self.corrections: dict[str, list[RecordedCorrection]] = {}
        """The corrections of each ladder, in the order of their events."""
        self._corrected: dict[str, set[tuple[int, int]]] = {}
        """The places (`RecordedCorrection.place`) of the corrections of each ladder."""
        self._restated: dict[str, list[Sequence[RecordedCorrection]]] = {}
        """By ladder, the corrections of a series of events that is not read to its end yet."""
        self.replayed: dict[int, int] = {}
        """By partition, the largest offset of `LadderEvent.replayed`."""

    def read(self, message: bytes) -> None:
        """Add a record of the topic. Raises UnknownLadderEvent for a ladder event that this release
        does not understand. A record that is not a ladder event of any release is ignored."""
        try:
            event = _decode(message)
        except msgspec.ValidationError:
            self._refuse_unknown(message)
            return
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        for p, offset in enumerate(event.replayed):
            self.replayed[p] = max(offset, self.replayed.get(p, 0))
        for ladder, history in event.histories.items():
            if history and offset_of(history[0]):  # before its first entry it was not known
                history = (*UNKNOWN, *history)
            self._add(event.kind, ladder, Proposal(event.proposal, history))
        for ladder in event.unknown:
            self._add(event.kind, ladder, Proposal(event.proposal, UNKNOWN))
        if event.limits:
            self._add(event.kind, FILE_LIMITS, Proposal(event.proposal, (f"0:{event.limits}",)))
        for ladder, chunk in event.corrections.items():
            if event.kind == "restated":
                self._restate(ladder, chunk, event)
            else:
                self._correct(ladder, chunk)

    def _correct(self, ladder: str, chunk: Iterable[RecordedCorrection]) -> None:
        places = self._corrected.setdefault(ladder, set())
        for each in chunk:
            if each.place not in places:
                places.add(each.place)
                self.corrections.setdefault(ladder, []).append(each)

    def _restate(
        self, ladder: str, chunk: Sequence[RecordedCorrection], event: LadderEvent
    ) -> None:
        """Add one event of a series that restates a ladder's corrections. It does not count unless
        all earlier events of its series were read. If they were not, a rebuild was stopped between
        them, or Kafka has the event twice."""
        pieces = self._restated.setdefault(ladder, []) if event.number else []
        if event.number != len(pieces):
            return
        pieces.append(chunk)
        self._restated[ladder] = pieces
        if not event.left:
            del self._restated[ladder]
            self.corrections.pop(ladder, None)  # a new list, so that readers read it from its start
            self._corrected.pop(ladder, None)
            self._correct(ladder, chain.from_iterable(pieces))

    def _refuse_unknown(self, message: bytes) -> None:
        try:
            kind = _decode_any(message).kind
        except msgspec.DecodeError:
            return
        raise UnknownLadderEvent(f"a note of kind {kind!r} that this release does not understand")

    def _add(self, kind: str, ladder: str, proposal: Proposal) -> None:
        if kind == "restated":
            self._proposed.pop(ladder, None)
            self._in_force[ladder] = proposal.history
            if not proposal.history:  # not in the file any more: as if never rated
                del self._in_force[ladder]
        elif kind == "noted" and proposal.history:
            known = self._in_force.setdefault(ladder, proposal.history)
            if known == UNKNOWN and continues(proposal.history, known):  # by an older release
                self._in_force[ladder] = proposal.history
        elif kind == "proposed":
            if continues(proposal.history, self._in_force.get(ladder, ())):
                self._proposed.setdefault(ladder, proposal)
        elif self._proposed.get(ladder) == proposal:
            del self._proposed[ladder]
            if kind == "confirmed":
                self._in_force[ladder] = proposal.history

    def in_force(self, ladder: str) -> History:
        """The history of a ladder that is in force, without undecided proposals; empty if there is
        none."""
        return self._in_force.get(ladder, ())

    @property
    def recorded(self) -> list[str]:
        """All ladders that have a history in force; FILE_LIMITS may be among them."""
        return list(self._in_force)

    @property
    def ladders(self) -> list[str]:
        """All ladders that are rated."""
        return [each for each, known in self._in_force.items() if each and known != UNKNOWN]

    @property
    def unknown(self) -> list[str]:
        """The ladders of which records were rejected because no ladders file knew them."""
        return [each for each, known in self._in_force.items() if known == UNKNOWN]

    def proposed(self, ladder: str) -> Proposal | None:
        """The undecided proposal of a ladder, if there is one."""
        return self._proposed.get(ladder)

    def of(self, ladder: str) -> History:
        """The history by which rounds may be rated. If there is an undecided proposal, an entry
        that no ladders file can have stands from its offset on."""
        in_force, proposed = self._in_force.get(ladder, ()), self._proposed.get(ladder)
        if proposed is None:
            return in_force
        return (*in_force, f"{offset_of(proposed.history[len(in_force)])}:{UNCONFIRMED}")


def offset_of(entry: str) -> int:
    """The offset from which on an entry of a history holds."""
    return int(entry.partition(":")[0])


def continues(file_history: History, in_force: History) -> bool:
    """Whether `file_history` begins with all of `in_force`, which is not empty, and is longer."""
    return len(file_history) > len(in_force) > 0 and tuple(file_history[: len(in_force)]) == tuple(
        in_force
    )


def first_contradiction(file_history: History, in_force: History) -> float:
    """The first offset at which `file_history` contradicts `in_force`; infinite if it never does.
    Further entries of `file_history` are no contradiction."""
    for i, entry in enumerate(in_force):
        if i >= len(file_history):
            return offset_of(entry)
        if file_history[i] != entry:
            return min(offset_of(file_history[i]), offset_of(entry))
    return math.inf


def allowed_before(file_history: History, in_force: History) -> float:
    """The offset before which rounds may be rated: the first at which the histories differ."""
    next_offset = (
        offset_of(file_history[len(in_force)]) if len(file_history) > len(in_force) else math.inf
    )
    return min(first_contradiction(file_history, in_force), next_offset)


def objection(ladder: str, file_history: History, in_force: History) -> str:
    """The reason, in one line, why `file_history` contradicts `in_force`, the history in the ladder
    events; empty if it does not."""
    offset = first_contradiction(file_history, in_force)
    if offset == math.inf:
        return ""
    if ladder == FILE_LIMITS:
        return (
            f"[limits] of this worker's ladders file ({_text(file_history)}) are not those by "
            f"which records were rejected ({_text(in_force)}): give all workers the same file, or, "
            "to validate all records again by this file, stop all workers and run `stream-rater "
            "rebuild --replace`"
        )
    if tuple(in_force) == UNKNOWN:
        return (
            f"ladder {ladder!r}: its records were rejected up to now, because the ladders file did "
            "not name it: give it a from_offset that its partition has not reached, or, to rate "
            "those records, stop all workers and run `stream-rater rebuild --replace`"
        )
    if any(entry.endswith(UNCONFIRMED) for entry in in_force):
        return (
            f"ladder {ladder!r}: a change from offset {offset:.0f} on was announced and not "
            "confirmed: start a worker with the new ladders file to confirm it, or one with the "
            "old file to withdraw it"
        )
    return (
        f"ladder {ladder!r}: this worker's ladders file ({_at(offset, file_history)}) and the "
        f"notes on Kafka ({_at(offset, in_force)}) differ from offset {offset:.0f} on: give all "
        "workers the same file, or, to rate all rounds again by this file, stop all workers and "
        "run `stream-rater rebuild --replace`; in development, where no rating is to be kept, "
        "begin afresh with another STREAM_RATER_TOPIC_PREFIX and an empty Redis"
    )


def _at(offset: float, history: History) -> str:
    """The fingerprint of the parameters that a history has at an offset."""
    known = [each for each in history if offset_of(each) <= offset]
    return known[-1].partition(":")[2] if known else NOT_KNOWN


def _text(limits: History) -> str:
    return limits[0].removeprefix("0:")


def to_note(
    histories: Mapping[str, History], only_read: Container[str], ladder_log: LadderLog
) -> dict[str, History]:
    """The first notes to write before records of these ladders are finished (`Agree`)."""
    full = UNKNOWN in map(tuple, histories.values()) and len(ladder_log.unknown) >= MOST_UNKNOWN
    return {
        ladder: own
        for ladder, own in histories.items()
        if ladder not in only_read
        and not ladder_log.in_force(ladder)
        and not (full and tuple(own) == UNKNOWN)
    }


def agreed_histories(histories: Mapping[str, History], ladder_log: LadderLog) -> dict[str, History]:
    """The histories by which records may be rated or rejected now, by ladder. For a ladder without
    a note it is that of the file."""
    return {ladder: ladder_log.of(ladder) or own for ladder, own in histories.items()}


class LadderEventLog(Protocol):
    """The log from which ladder events are read and to which they are written."""

    def read(self) -> LadderLog:
        """Return the fold of all ladder events that exist now."""

    def write(self, messages: Sequence[bytes]) -> None:
        """Append ladder events. They are in the log when this returns."""


def announce(
    file_histories: Mapping[str, History],
    log: LadderEventLog,
    end_of: Callable[[str], int],
    proposal: str,
    finished_of: Callable[[str], int],
) -> None:
    """Announce the changes in the ladders file of a worker that starts, and confirm them.

    `end_of` returns the end offset of a ladder's partition, and `finished_of` the offset before
    which all its records are finished. `proposal` is an id that was never used before. Raises
    LadderContradiction if the file contradicts the ladder events, if a change comes too late, or if
    another worker withdrew a change.
    """
    ladder_log = log.read()
    for ladder, history in file_histories.items():
        left = ladder_log.proposed(ladder)
        if left is not None and left.history != tuple(history):
            # The worker that proposed it has died, or it will see that its proposal was withdrawn.
            log.write(encode_histories("withdrawn", {ladder: left.history}, left.id))
    first_notes = _histories_to_record(file_histories, ladder_log, finished_of)
    log.write(encode_histories("noted", first_notes))
    ladder_log = log.read()
    for ladder, history in file_histories.items():
        if why := objection(ladder, history, ladder_log.in_force(ladder)):
            raise LadderContradiction(why)
    changed = {
        each: new
        for each, new in file_histories.items()
        if continues(new, ladder_log.in_force(each))
    }
    starts = {each: offset_of(new[len(ladder_log.in_force(each))]) for each, new in changed.items()}
    _check_in_time(starts, end_of)
    log.write(encode_histories("proposed", changed, proposal))
    ladder_log = log.read()
    proposals = {each: ladder_log.proposed(each) for each in changed}
    try:
        _check_in_time(starts, end_of)
    except LadderContradiction:
        _decide("withdrawn", proposals, log)
        raise
    _decide("confirmed", proposals, log)
    ladder_log = log.read()
    for ladder, history in changed.items():
        if tuple(ladder_log.in_force(ladder)[: len(history)]) != tuple(history):
            raise LadderContradiction(
                f"ladder {ladder!r}: another worker withdrew this worker's change: start this "
                "worker again"
            )


def _decide(kind: str, proposals: Mapping[str, Proposal | None], log: LadderEventLog) -> None:
    """Decide these proposals and no others. Any worker may have made them."""
    for ladder, proposal in proposals.items():
        if proposal is not None:
            log.write(encode_histories(kind, {ladder: proposal.history}, proposal.id))


def _histories_to_record(
    file_histories: Mapping[str, History], ladder_log: LadderLog,
    finished_of: Callable[[str], int],
) -> dict[str, History]:  # fmt: skip
    """The ladders for which to write a ladder event before their first round: those without an
    event, for which the file has changes. Otherwise a worker with an older file might write its
    event first. If records at a change may be finished already (by an older release, or because
    there were MOST_UNKNOWN), the event has only what holds before, and the change is proposed. For
    a ladder without changes, the event is written with its first record, and the file may be
    edited until then."""
    return {
        each: history if offset_of(history[1]) >= finished_of(each) else history[:1]
        for each, history in file_histories.items()
        if len(history) > 1 and not ladder_log.in_force(each)
    }


def _check_in_time(starts: Mapping[str, int], end_of: Callable[[str], int]) -> None:
    for ladder, offset in starts.items():
        if offset < (end := end_of(ladder)):
            raise LadderContradiction(
                f"ladder {ladder!r}: a change from offset {offset} on comes too late, because its "
                f"partition of round-completed already ends at {end}: choose a later offset"
            )
