"""The file of observations: what clients saw, one JSON object a line, gzipped. Bytes of Kafka are
text of Latin-1; times are Unix seconds by the recorder's clock."""

import gzip
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

Topic = Literal["rounds", "changed", "rejected"]
"""`round-completed`, `rating-changed` and `round-rejected`, whatever their prefix is."""


class Line(msgspec.Struct, frozen=True, tag_field="k", gc=False):
    """The base class of all lines."""


class Run(Line, frozen=True, tag="run", kw_only=True):
    """The first line of a file: what the clients know of the settings."""

    reader: str  # the name of who has written the file
    partitions: int = 0  # of `round-completed`; 0 if HTTP alone is observed
    shards: int = 0  # the partitions of `rating-changed`
    window: int = 100_000  # the duplicate window, in offsets
    threshold: float = 0.5  # the correction threshold, in points
    ladders: list[str] | None = None  # the configured ones; None if a template stands for all
    rated: dict[str, dict[str, object]] = {}  # Tables `rating` of the ladders; `*`: the template.
    redisplayed: dict[str, int] = {}  # Ladders with other, unknown parameters from there on.
    corrections_refused: list[str] = []  # the ladders that take no corrections


class Seen(Line, frozen=True, tag="r", kw_only=True):
    """A record that was read committed."""

    t: Topic
    p: int  # its partition
    o: int  # its offset
    v: str | None  # its value
    key: str | None = None
    h: list[tuple[str, str | None]] = []  # its headers
    ts: int = 0  # its timestamp in Kafka, in Unix milliseconds
    at: float = 0.0  # when it was read

    def header(self, name: str) -> str:
        return next((value or "" for found, value in self.h if found == name), "")

    @property
    def value(self) -> bytes:
        return (self.v or "").encode("latin-1")


class Sent(Line, frozen=True, tag="s", kw_only=True):
    """A round that a client posted, and the answer about it."""

    c: str  # the connection
    ladder: str
    round: msgspec.Raw  # the round as it was sent, in JSON
    status: int  # the HTTP status about this round; 0 if there was no answer
    p: int = -1
    o: int = -1  # the place that the answer gave
    began: float = 0.0
    at: float = 0.0


class Answered(Line, frozen=True, tag="a", kw_only=True):
    c: str  # The connection: a name that no other connection has. One question follows the other.
    path: str  # the path of the question, with its query
    status: int
    body: msgspec.Raw
    ask: list[str] = []  # the players that a lookup asked for
    began: float = 0.0
    at: float = 0.0


class Streamed(Line, frozen=True, tag="e", kw_only=True):
    """A server-sent event of `changes`."""

    c: str
    ladder: str
    event: str  # `rating-changed`, or `reset`
    data: str
    id: str = ""
    at: float = 0.0


class End(Line, frozen=True, tag="end", kw_only=True):
    """The last line: the recorder has read everything that there was when the run was over."""

    ends: dict[str, int] = {}  # for each `topic/partition`, the offset behind all that was read
    records: int = 0  # the records in this file


Any = Run | Seen | Sent | Answered | Streamed | End

decode = msgspec.json.Decoder(Any).decode
encode = msgspec.json.Encoder().encode
_seen = msgspec.json.Decoder(Seen).decode
BUFFER = 2**20
RECORD = b'{"k":"r"'  # how the line of a record begins
REJECTED = b'{"k":"r","t":"rejected"'


class Writer:
    def __init__(self, path: Path) -> None:
        # The lowest level: the recorder must not fall behind.
        self._file = gzip.GzipFile(path, "wb", compresslevel=1)
        self.records = 0

    def write(self, line: Line) -> None:
        self.records += isinstance(line, Seen)
        self._file.write(encode(line) + b"\n")

    def close(self) -> None:
        self._file.close()


class BadObservations(ValueError):
    """A file that is no recording: its place and what is wrong with it."""


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file. Raises BadObservations if the file ends within one."""
    try:
        with gzip.open(path, "rb") as file:
            yield from io.BufferedReader(file, BUFFER)
    except (EOFError, gzip.BadGzipFile) as error:
        raise BadObservations(f"{path}: {error}: let the recorder end by itself") from None


def others_of(path: Path) -> Iterator[Any]:
    """Everything in a file but the records of `round-completed` and `rating-changed`."""
    for number, line in enumerate(lines_of(path), 1):
        if not line.startswith(RECORD) or line.startswith(REJECTED):
            yield _decoded(path, number, line)


def records_of(path: Path) -> Iterator[Seen]:
    """The records in a file, in the order in which they were read."""
    for number, line in enumerate(lines_of(path), 1):
        if line.startswith(RECORD):
            try:
                yield _seen(line)
            except msgspec.DecodeError as error:
                raise BadObservations(f"{path}:{number}: {error}") from None


def _decoded(path: Path, number: int, line: bytes) -> Any:
    try:
        return decode(line)
    except msgspec.DecodeError as error:
        raise BadObservations(f"{path}:{number}: {error}: it is no line of a recorder") from None


def write_all(path: Path, lines: Iterable[Line]) -> None:
    with closing(Writer(path)) as writer:
        for line in lines:
            writer.write(line)


# --- what the judge found -------------------------------------------------------------------------

MOST_LINES = 1000  # The violations that are kept as lines. All are counted.


@dataclass
class Findings:
    lines: list[str] = field(default_factory=list)
    violations: int = 0
    checked: Counter[str] = field(default_factory=Counter)  # how often each thing was checked
    left_open: Counter[str] = field(default_factory=Counter)
    """What the texts do not decide, or what this recording does not show."""

    def wrong(self, rule: str, who: object, where: str, what: str) -> None:
        """Note a violation: the rule, the player or round, the place, and the records."""
        self.violations += 1
        if len(self.lines) < MOST_LINES:
            self.lines.append(f"{rule}: {who} at {where}: {what}")

    @property
    def clean(self) -> bool:
        """Whether something was checked, and nothing is wrong."""
        return not self.violations and (self.checked["changes"] > 0 or self.checked["answers"] > 0)

    def report(self, most: int = MOST_LINES) -> Iterator[str]:
        yield from self.lines[:most]
        if self.violations > min(most, len(self.lines)):
            yield f"... {self.violations - min(most, len(self.lines))} more"
        for name, count in sorted(self.checked.items()):
            yield f"checked {name}: {count:,}"
        for name, count in sorted(self.left_open.items()):
            yield f"left open, {name}: {count:,}"
        if self.violations:
            yield f"VIOLATED: {self.violations} violations"
        else:
            yield "clean" if self.clean else "NOTHING CHECKED: no change and no answer"
