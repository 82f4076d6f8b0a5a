"""Rewrites the records of a log under a pseudonym, for `erase`.

Each record keeps its partition and its offset: so the `last` of a belief and the offsets in events,
in ladder events and in the ladders file are right for both logs, and the duplicate window has the
same reach. A rejected record may hold the id, so an empty one takes its place, which is rejected,
too. Empty records also fill offsets without a record, as at the end of a transaction.

A record that does not name the player stays as it is, byte for byte. In the others the id is
replaced, and all other fields keep their bytes. Where a key is given twice, all readers take the
last value; if another one has the id, the record is encoded again without it.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, structs

from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import UNDECODABLE, escape, shown
from stream_rater.contract.record import Player, Record, header
from stream_rater.pipeline.ladder_history import LadderEvent, encode_corrections
from stream_rater.pipeline.ports import RecordedCorrection
from stream_rater.replay.edited_log import EditedLog, Verdicts
from stream_rater.rounds.correction_records import is_seed
from stream_rater.rounds.decoder import kind_of
from stream_rater.runtime.progress import counted

Fields = dict[str, Raw]
PLAYER_FIELDS = "player", "into"  # Fields of a correction or a reset that name a player.
SEEDED_FIELD = "players"  # The field of a seed that names players.
ENTRY_FIELDS = frozenset({"player", "team", "rank", "dnf", "shares"})
STRUCTURED_FIELDS = frozenset(
    {"ladder", "completed_at", "from", "until", "event_type", "standings", *PLAYER_FIELDS}
)
"""Fields in which a producer cannot write free text."""
STRUCTURED_IN_SEEDS = STRUCTURED_FIELDS | {"at", SEEDED_FIELD}  # The same of a seed or a reset.
AT_ONCE = 5000  # The number of records that are validated together.
MOST_PLACES = 20  # The largest number of places that `Mentions` stores.


class _Codec(NamedTuple):
    """Splits messages into fields, and keeps the bytes of each field. It has functions that decode
    a message, the entries of standings, or any value, and a function that encodes one."""

    fields: Callable[[bytes], Fields]
    entries: Callable[[bytes], list[Fields]]
    anything: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]

    @classmethod
    def of(cls, form: Any) -> "_Codec":
        """The codec for a format. `form`: `msgspec.json` or `msgspec.msgpack`."""
        return cls(
            form.Decoder(Fields).decode, form.Decoder(list[Fields]).decode,
            form.Decoder().decode, form.Encoder().encode,
        )  # fmt: skip


_JSON, _MSGPACK = _Codec.of(msgspec.json), _Codec.of(msgspec.msgpack)
_decode_ladder_event = msgspec.json.Decoder(LadderEvent).decode


def _once(codec: _Codec, value: bytes) -> bytes:
    """A value in which each key is given once. A field that cannot be read stays as it is."""
    fields = codec.fields(value)
    for name, each in fields.items():
        with suppress(*UNDECODABLE):
            fields[name] = Raw(codec.encode(codec.anything(each)))
    return codec.encode(fields)


def _codec_of(record: Record) -> _Codec:
    return _MSGPACK if "msgpack" in header(record.headers, "content-type").lower() else _JSON


class Pseudonym:
    """Replaces a player's id by another name. Its methods take only accepted records."""

    def __init__(self, player: str, name: str) -> None:
        self.player = player
        self.name = name
        self._bytes = player.encode()
        self._escaped = escape(player)
        self._raw_word = re.compile(rb"(?<![^\W_])%b(?![^\W_])" % re.escape(self._bytes)).search
        self._word = re.compile(rf"(?<![^\W_]){re.escape(player)}(?![^\W_])").search

    # --- round-completed ---

    def names(self, record: Record) -> bool:
        """Whether a round, a seed, a reset or a correction names the player."""
        return self.record(record) is not record

    def record(self, record: Record) -> Record:
        """A record with the new name; the same object if it does not name the player."""
        value = record.value or b""
        if self._bytes not in value and b"\\" not in value:  # escapes may hide the id
            return record
        codec = _codec_of(record)
        new = self._renamed(codec, record, value)
        left = value if new is None else new
        if self._raw_word(left) or b"\\" in left:  # perhaps under a key that is given twice
            once = _once(codec, value)
            if self._count(codec, once) < self._count(codec, value):
                new = self._renamed(codec, record, once) or once
        return record if new is None else structs.replace(record, value=new)

    def _renamed(self, codec: _Codec, record: Record, value: bytes) -> bytes | None:
        """The value of a record with the new name; None if it does not name the player."""
        fields = codec.fields(value)
        found = bool(kind_of(record)) and self._rename(codec, fields, PLAYER_FIELDS)
        if SEEDED_FIELD in fields and is_seed(record):
            rows = codec.entries(fields[SEEDED_FIELD])
            if any(self._rename(codec, each, ("player",)) for each in rows):
                fields[SEEDED_FIELD], found = Raw(codec.encode(rows)), True
        if "standings" in fields:
            entries = codec.entries(fields["standings"])
            if sum([self._rename_entry(codec, each) for each in entries]):
                fields["standings"], found = Raw(codec.encode(entries)), True
        return codec.encode(fields) if found else None

    def _count(self, codec: _Codec, value: bytes) -> int:
        """How often the id stands in a value, with all values of keys that are given twice."""
        if codec is _MSGPACK:
            return value.count(self._bytes)
        text = value.decode(errors="replace")  # a field that nobody reads may be no UTF-8
        whole = json.loads(text, object_pairs_hook=lambda pairs: [*chain.from_iterable(pairs)])
        return sum(self._word(each) is not None for each in _texts(whole))

    def _rename(self, codec: _Codec, fields: Fields, names: Sequence[str]) -> bool:
        """Put the new name into the fields that name the player. Returns whether there was one."""
        matching = [n for n in names if n in fields and codec.anything(fields[n]) == self.player]
        fields |= dict.fromkeys(matching, Raw(codec.encode(self.name)))
        return bool(matching)

    def _rename_entry(self, codec: _Codec, entry: Fields) -> bool:
        found = self._rename(codec, entry, ("player",))
        team = codec.anything(entry["team"]) if "team" in entry else None
        if team is not None and self.player in team:
            members = [self.name if each == self.player else each for each in team]
            entry["team"], found = Raw(codec.encode(members)), True
        return found

    def leftover_field(self, record: Record) -> str:
        """The field or header of a renamed record where the id is still a word; empty if none."""
        value = record.value or b""
        if self._bytes in value or b"\\" in value:
            structured = STRUCTURED_IN_SEEDS if is_seed(record) else STRUCTURED_FIELDS
            for name, text in _free_texts(_codec_of(record), value, structured):
                if self._word(text):
                    return name
        for name, content in record.headers:
            if content and self._bytes in content and self._word(content.decode(errors="replace")):
                return f"header {name}"
        return ""

    # --- rating-changed and ladders-noted ---

    def is_key(self, key: bytes | None) -> bool:
        """Whether this is a key of the player in `rating-changed`."""
        return key is not None and key.partition(b":")[2] == self._escaped.encode()

    def event(self, record: Record) -> Record:
        """A record of `rating-changed` that has one of the player's keys, with the new name."""
        key = (record.key or b"").partition(b":")[0] + f":{escape(self.name)}".encode()
        if record.value is None:
            return structs.replace(record, key=key)
        fields = _JSON.fields(record.value)
        self._rename(_JSON, fields, ("player",))
        # Its last part is the player.
        before = _JSON.anything(fields["event_id"]).rpartition(":")[0]
        event_id = f"{before}:{escape(self.name)}"
        fields["event_id"] = Raw(_JSON.encode(event_id))
        headers = [
            (name, event_id.encode() if name == "ce_id" else each) for name, each in record.headers
        ]
        return structs.replace(record, key=key, value=_JSON.encode(fields), headers=headers)

    def ladder_events(self, message: bytes) -> list[bytes]:
        """The messages that replace a message of `ladders-noted`, with the new name; none if it is
        not a ladder event. An event that restates corrections becomes an ordinary event about them:
        the rebuild that follows restates them, wherever that makes a difference."""
        try:
            event = _decode_ladder_event(message)
        except UNDECODABLE:
            return []
        renamed = {
            ladder: [self._renamed_correction(each) for each in some]
            for ladder, some in event.corrections.items()
        }
        if renamed == {ladder: list(some) for ladder, some in event.corrections.items()}:
            return [message]
        return encode_corrections(renamed)

    def _renamed_correction(self, recorded: RecordedCorrection) -> RecordedCorrection:
        fields = _JSON.fields(recorded.correction)
        if not self._rename(_JSON, fields, PLAYER_FIELDS):
            return recorded
        return structs.replace(recorded, correction=Raw(_JSON.encode(fields)))


def _free_texts(
    codec: _Codec, value: bytes, structured: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the texts in all fields that are not `structured`, with the name of their field."""
    fields = codec.fields(value)
    free = [(name, each) for name, each in fields.items() if name not in structured]
    for entry in codec.entries(fields["standings"]) if "standings" in fields else ():
        free += [(f"standings[].{n}", each) for n, each in entry.items() if n not in ENTRY_FIELDS]
    for name, each in free:
        try:
            found = codec.anything(each)
        except UNDECODABLE:  # nobody reads this field
            found = bytes(each).decode(errors="replace")
        yield from ((name, text) for text in _texts(found))


def _texts(value: Any) -> Iterator[str]:
    """All texts in a decoded value."""
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from _texts(each)
        case dict():
            for key, each in value.items():
                yield from _texts(key)
                yield from _texts(each)


Flagged = Iterable[tuple[Record, bool]]
"""Records of `round-completed`, each with whether it was accepted."""


def flagged(
    records: Iterable[Record], ladders: Ladders, window: int, partitions: int,
    verdicts: Verdicts | None,
) -> Flagged:  # fmt: skip
    """Yield the records of a log with their flags. `verdicts`: those on its corrections, if it has
    any. Raises MissingVerdicts."""
    log, left = EditedLog(ladders, window, partitions, verdicts), iter(records)
    while batch := list(islice(left, AT_ONCE)):
        rejected = {(each.partition, each.offset) for each, _ in log.read(batch).rejected}
        for each in batch:
            yield each, (each.partition, each.offset) not in rejected


@dataclass
class Mentions:
    """The counts of records that name the player, and the places where an id stands."""

    verdicts: Verdicts | None
    named: Counter[str] = field(default_factory=Counter)
    """The numbers of accepted rounds, seeds (and resets), and corrections that name the player."""
    accepted: int = 0
    rejected: int = 0
    conflict: str = ""  # A place where the pseudonym stands already; empty if there is none.
    left: int = 0  # The number of records in which the id stays, in another field.
    places: list[str] = field(default_factory=list)  # The places of the first MOST_PLACES of these.

    def warn(self) -> None:
        """Warn on standard error of the places where the id stays."""
        for place in self.places:
            print(f"warning: the id stays in {shown(place)}", file=sys.stderr)
        if more := self.left - len(self.places):
            print(f"warning: and in {counted(more, 'record')} more", file=sys.stderr)

    def read(self, records: Flagged, pseudonym: Pseudonym) -> None:
        """Count the next records."""
        reverse = Pseudonym(pseudonym.name, pseudonym.player)
        for record, is_accepted in records:
            if not is_accepted:
                self.rejected += 1
                continue
            self.accepted += 1
            renamed = pseudonym.record(record)
            if renamed is not record:
                kind = "correction" if kind_of(record) else "round"
                self.named["seed" if is_seed(record) else kind] += 1
            place = f"partition {record.partition}, offset {record.offset}"
            if not self.conflict and reverse.names(record):
                self.conflict = place
            if leftover := pseudonym.leftover_field(renamed):
                self.left += 1
                self.places += [f"{place}: {leftover}"] if self.left <= MOST_PLACES else []

    def __bool__(self) -> bool:
        """Whether any accepted record names the player."""
        return self.named.total() > 0

    def __str__(self) -> str:
        """The numbers of these records."""
        rounds, seeds, corrections = (
            counted(self.named[kind], kind) for kind in ("round", "seed", "correction")
        )
        return f"{rounds}{f', {seeds}' if self.named['seed'] else ''} and {corrections}"


def changes_merge_order(verdicts: Verdicts, pseudonym: Pseudonym) -> Player | None:
    """A ladder and the name of another player that sorts between the id and the pseudonym; None if
    there is no such name that matters. It matters where accounts are merged: if several of them
    stand in a round or a seed, the one with the least name stays (`replay.edits`)."""
    for ladder, edits in verdicts.edits.items():
        edit = edits.entries.get(pseudonym.player)
        if edit is None or edit.player == pseudonym.player:
            continue
        for other in edits.names_of(edit.player):
            if other not in (edit.player, pseudonym.player) and (other < pseudonym.player) != (
                other < pseudonym.name
            ):
                return ladder, other
    return None


def rewritten(
    records: Flagged, ends: Mapping[int, int], pseudonym: Pseudonym | None
) -> Iterator[Record]:
    """Yield the records of the new log: in each partition in order, and without a gap up to its
    end. `pseudonym`: None copies the accepted records as they are."""
    done: dict[int, int] = {}  # By partition, the offset of the next record to yield.
    for record, is_accepted in records:
        partition, offset = record.partition, record.offset
        empty = range(done.get(partition, 0), offset if is_accepted else offset + 1)
        yield from (Record(partition, each, None) for each in empty)
        if is_accepted:
            yield record if pseudonym is None else pseudonym.record(record)
        done[partition] = offset + 1
    for partition, end in ends.items():
        yield from (Record(partition, at, None) for at in range(done.get(partition, 0), end))
