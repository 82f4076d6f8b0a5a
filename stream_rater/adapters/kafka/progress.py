"""Reads how far the workers are, and what they rejected, for `serve`."""

import threading
from collections.abc import Callable, Sequence

import msgspec

from stream_rater.adapters.kafka.envelopes import place_of
from stream_rater.adapters.kafka.reader import Reader
from stream_rater.adapters.kafka.topics import REQUEST_TIMEOUT_S, Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import ESTIMATORS, UNDECODABLE, UPDATERS
from stream_rater.contract.record import Record, header
from stream_rater.contract.submissions import Place, Progress, RejectedRecord

LOOK_BACK = 1000
"""The number of offsets of each partition of `round-rejected` that are read at the start."""
POLL_S = 0.2
PROGRESS_TIMEOUT_S = 2.0
"""The time-out of a request about progress, for which clients wait."""


class KafkaProgress:
    """Reads how far the workers are. It is for one thread. The methods raise LogTrouble, Denied or
    TopicMismatch."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connected: Admin | None = None
        self._rounds = 0
        """The number of partitions of `round-completed`, which never changes."""

    def read(self) -> Progress:
        """The progress now. Each field is read after the one before it."""
        admin = self._admin()
        topics = admin.topics
        rated = admin.committed(ESTIMATORS, topics.rounds, self._rounds)
        # Shards may have been added. Whoever rated by their new number knew it before.
        part_ends = admin.all_ends(topics.parts)
        applied = admin.committed(UPDATERS, topics.parts, len(part_ends))
        change_ends = admin.all_ends(topics.changed)
        if len(part_ends) != len(change_ends):
            raise LogTrouble(f"kafka: {topics.parts} and {topics.changed} differ in partitions")
        return Progress(
            [rated[p] or 0 for p in range(self._rounds)], part_ends,
            [applied[s] or 0 for s in range(len(part_ends))], change_ends,
            admin.all_ends(topics.rejected),
        )  # fmt: skip

    def ends(self) -> list[int]:
        """The end of each partition of `round-completed`."""
        admin = self._admin()
        return admin.ends(admin.topics.rounds, self._rounds)

    def _admin(self) -> Admin:
        if self._connected is None:
            admin = Admin(self._settings, request_timeout_s=PROGRESS_TIMEOUT_S)
            names = admin.topics
            self._rounds, *_ = admin.partitions_of(
                names.rounds, names.parts, names.changed, names.rejected
            )
            self._connected = admin
        return self._connected


Rejected = Callable[[Sequence[RejectedRecord], Sequence[int]], None]
"""Receives rejections, and the positions up to which `round-rejected` has been read."""


class RejectionReader:
    """Follows `round-rejected`. After a failure, `run` goes on where it stopped."""

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        self._settings, self._stop = settings, stop
        self._positions: list[int] = []

    def run(self, begun: Callable[[], None], rejected: Rejected) -> None:
        """Follow until `stop` is set, or until the topic has more partitions: then call it again.
        `begun` is called once the topic is being read. Raises LogTrouble, Denied or
        TopicMismatch."""
        admin = Admin(self._settings, request_timeout_s=REQUEST_TIMEOUT_S)
        topic = admin.topics.rejected
        (partitions,) = admin.partitions_of(topic)
        with Reader(self._settings, topic, placeholders=True) as reader:
            back = 0 if self._positions else LOOK_BACK  # 0: all of partitions that were added
            bounds = [reader.bounds(p) for p in range(len(self._positions), partitions)]
            self._positions += [max(first, end - back) if back else first for first, end in bounds]
            reader.start_at(dict(enumerate(self._positions)))
            begun()
            while not (self._stop.is_set() or reader.added(len(self._positions))):
                records = reader.read(POLL_S)
                for record in records:
                    self._positions[record.partition] = record.offset + 1
                for p, end in reader.ends.items():
                    self._positions[p] = max(self._positions[p], end)
                if records or reader.ends:
                    found = [each for record in records if (each := rejection_in(record))]
                    rejected(found, list(self._positions))


def rejection_in(record: Record) -> RejectedRecord | None:
    """The rejection in a record of `round-rejected`; None if it is none."""
    place = place_of(record.headers)
    if place is None:
        return None
    ladder, round_id = "", ""
    if not header(record.headers, EVENT_TYPE):
        ladder, round_id = _names_in(record.value or b"")
    code, detail = header(record.headers, "error-code"), header(record.headers, "error")
    return RejectedRecord(Place(*place), code, detail, ladder, round_id)


class _Names(msgspec.Struct):
    ladder: str = ""
    round_id: str = ""


_names = msgspec.json.Decoder(_Names).decode


def _names_in(value: bytes) -> tuple[str, str]:
    try:
        found = _names(value)
    except UNDECODABLE:
        return "", ""
    return found.ladder, found.round_id
