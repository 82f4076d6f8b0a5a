"""How ladders are rated from which offset on, as the log tells it: notes, and what they add up to.

`ladders-noted` is a topic of one partition that nothing is deleted from. What all workers go by is
the fold of its notes, in order. No loss of the store touches it.

- `noted`: how a ladder is rated. The first note of a ladder counts. It is written by whoever is
  about to rate the ladder's first round, who reads it back before the round is rated; or before, by
  a worker that starts with changes of it.
- `proposed`: the history is to go on so. From the first new offset on, rounds of the ladder wait.
  A proposal has an id of its own, which what decides it names: no late decision is about another.
- `confirmed`: it does. Whoever confirms has seen, after the proposal was in the log, that the
  ladder's partition had not come to that offset yet. So every round from it on was reported after
  the proposal, and nobody has rated it by what held before.
- `withdrawn`: it does not; the partition was there already. Of the two the first one counts.
- `restated`: a `rebuild` has rated all rounds of a ladder by this history, whatever held before.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

History = Sequence[str]
"""Entries `offset:fingerprint`: from that offset on, rated by parameters with that fingerprint."""

OPEN = "not confirmed"
"""Stands for the fingerprint of what is proposed and not decided: no file has it."""


class UnknownNote(ValueError):
    """A note that this release does not understand: it is refused, never guessed."""


class AtOdds(Exception):
    """A ladders file that says other than the notes, or says it too late: one line."""


class Note(msgspec.Struct, frozen=True):
    """One record of `ladders-noted`."""

    kind: Literal["noted", "proposed", "confirmed", "withdrawn", "restated"]
    histories: dict[str, tuple[str, ...]]
    """By ladder, whole ones."""
    proposal: str = ""
    """Its id, where it is one, or decides one."""


class Proposal(NamedTuple):
    """How a ladder's history is to go on."""

    id: str
    history: tuple[str, ...]


class _AnyNote(msgspec.Struct):
    kind: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Note).decode
_decode_any = msgspec.json.Decoder(_AnyNote).decode

AT_ONCE = 1000
"""Ladders in a note, at most."""


def notes(kind: str, histories: Mapping[str, History], proposal: str = "") -> list[bytes]:
    """Notes of this kind about these ladders, as messages."""
    ladders = list(histories)
    return [
        _encode(
            {
                "kind": kind,
                "histories": {each: histories[each] for each in some},
                "proposal": proposal,
            }
        )
        for some in (ladders[i : i + AT_ONCE] for i in range(0, len(ladders), AT_ONCE))
    ]


class Story:
    """The fold of the notes that were read."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[str, ...]] = {}
        self._proposed: dict[str, Proposal] = {}

    def read(self, message: bytes) -> None:
        """Add a record of the topic; raises UnknownNote. What is no note of any release is left."""
        try:
            note = _decode(message)
        except msgspec.ValidationError:
            self._refuse_unknown(message)
            return
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        for ladder, history in note.histories.items():
            self._add(note.kind, ladder, Proposal(note.proposal, history))

    def _refuse_unknown(self, message: bytes) -> None:
        try:
            kind = _decode_any(message).kind
        except msgspec.DecodeError:
            return
        raise UnknownNote(f"a note of kind {kind!r} that this release does not understand")

    def _add(self, kind: str, ladder: str, told: Proposal) -> None:
        if kind == "restated":
            self._noted[ladder] = told.history
            self._proposed.pop(ladder, None)
        elif kind == "noted":
            self._noted.setdefault(ladder, told.history)
        elif kind == "proposed":
            if goes_on(told.history, self._noted.get(ladder, ())):
                self._proposed.setdefault(ladder, told)
        elif self._proposed.get(ladder) == told:
            del self._proposed[ladder]
            if kind == "confirmed":
                self._noted[ladder] = told.history

    def noted(self, ladder: str) -> History:
        """What is noted, and decided, of a ladder; empty if nothing is."""
        return self._noted.get(ladder, ())

    @property
    def ladders(self) -> list[str]:
        """All of which anything is noted."""
        return list(self._noted)

    def proposed(self, ladder: str) -> Proposal | None:
        """How a ladder's history is to go on, where that is not decided."""
        return self._proposed.get(ladder)

    def of(self, ladder: str) -> History:
        """What rounds may be rated by: what is noted, and from a proposed offset on by nothing that
        a file may say."""
        noted, proposed = self.noted(ladder), self.proposed(ladder)
        if proposed is None:
            return noted
        return (*noted, f"{offset_of(proposed.history[len(noted)])}:{OPEN}")


def offset_of(entry: str) -> int:
    """From where on an entry holds."""
    return int(entry.partition(":")[0])


def goes_on(own: History, noted: History) -> bool:
    """Whether `own` is what was noted, and more."""
    return len(own) > len(noted) > 0 and tuple(own[: len(noted)]) == tuple(noted)


def odds(own: History, noted: History) -> float:
    """The offset from which on `own` says other than what was noted; infinite where it never does.
    What `own` says beyond it is no contradiction."""
    for i, entry in enumerate(noted):
        if i >= len(own):
            return offset_of(entry)
        if own[i] != entry:
            return min(offset_of(own[i]), offset_of(entry))
    return math.inf


def allowed_before(own: History, noted: History) -> float:
    """The offset before which rounds may be rated: until the two differ in anything."""
    beyond = offset_of(own[len(noted)]) if len(own) > len(noted) else math.inf
    return min(odds(own, noted), beyond)


def objection(ladder: str, own: History, noted: History) -> str:
    """What is wrong with a file that says so, in a line; empty if it only goes on."""
    offset = odds(own, noted)
    if offset == math.inf:
        return ""
    if any(entry.endswith(OPEN) for entry in noted):
        return (
            f"ladder {ladder!r}: a change from offset {offset:.0f} on was announced and not "
            "confirmed: start a worker with the new ladders file, or one with the old"
        )
    return (
        f"ladder {ladder!r}: other parameters were noted from offset {offset:.0f} on than this "
        "worker's ladders file has: give all workers the same file, or, to rate all rounds anew by "
        "this one, stop them and run `stream-rater rebuild --replace`"
    )


class Notes(Protocol):
    """Where notes are read and written."""

    def read(self) -> Story:
        """The fold of all that there are now."""

    def write(self, messages: Sequence[bytes]) -> None:
        """Add notes; they are there when this returns."""


def announce(
    own: Mapping[str, History], log: Notes, end_of: Callable[[str], int], proposal: str
) -> None:
    """What a worker does at its start with what its ladders file says: it has changes confirmed.

    `end_of` tells the end offset of a ladder's partition; `proposal` is an id that nobody has used
    before. Raises AtOdds where the file says other than what is noted, or a change comes too late.
    """
    story = log.read()
    for ladder, history in own.items():
        left = story.proposed(ladder)
        if left is not None and left.history != tuple(history):
            # Whoever proposed it has died, or is told that it was withdrawn.
            log.write(notes("withdrawn", {ladder: left.history}, left.id))
    log.write(notes("noted", _to_note(own, story)))
    story = log.read()
    for ladder, history in own.items():
        if why := objection(ladder, history, story.noted(ladder)):
            raise AtOdds(why)
    changed = {each: told for each, told in own.items() if goes_on(told, story.noted(each))}
    starts = {each: offset_of(told[len(story.noted(each))]) for each, told in changed.items()}
    _check_in_time(starts, end_of)
    log.write(notes("proposed", changed, proposal))
    story = log.read()
    proposals = {each: story.proposed(each) for each in changed}
    try:
        _check_in_time(starts, end_of)
    except AtOdds:
        _decide("withdrawn", proposals, log)
        raise
    _decide("confirmed", proposals, log)
    story = log.read()
    for ladder, history in changed.items():
        if tuple(story.noted(ladder)[: len(history)]) != tuple(history):
            raise AtOdds(f"ladder {ladder!r}: another worker withdrew its change: start again")


def _decide(kind: str, proposals: Mapping[str, Proposal | None], log: Notes) -> None:
    """About these proposals, and no others: whoever made them."""
    for ladder, proposal in proposals.items():
        if proposal is not None:
            log.write(notes(kind, {ladder: proposal.history}, proposal.id))


def _to_note(own: Mapping[str, History], story: Story) -> dict[str, History]:
    """Ladders that nobody has rated yet, and that have changes: else a worker with an older file
    may note them first. Others may still be edited."""
    return {each: told for each, told in own.items() if len(told) > 1 and not story.noted(each)}


def _check_in_time(starts: Mapping[str, int], end_of: Callable[[str], int]) -> None:
    for ladder, offset in starts.items():
        if offset < (end := end_of(ladder)):
            raise AtOdds(
                f"ladder {ladder!r}: a change from offset {offset} on comes too late, its "
                f"partition of the rounds ends at {end}: choose a later offset"
            )
