"""Decides which records of `round-completed` are accepted, by docs/reference/events.md, errors.md
alone. If these leave a case open, the judge takes the service's verdict, and counts the case."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from tests.judge.observations import Run, Seen

MOST_ID_BYTES = 128
MOST_BYTES = 8 * 2**20
MOST_SKEW_S = 86_400
MOST_WEIGHT = 1000
MOST_SEEDED = 5000
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)([Tt ])(\d\d):(\d\d):(\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")

ROUND = "round-completed"
SEEDS = ("players-seeded", "player-reset")
CORRECTIONS = (
    "round-voided", "round-amended", "player-removed", "player-merged", "season-started",
    "corrections-applied",
)  # fmt: skip


class Entry(NamedTuple):
    players: tuple[str, ...]
    rank: int | None  # none if it did not finish


class Read(NamedTuple):
    """A record, as far as it can be judged by itself."""

    kind: str  # its `event-type`
    ladder: str = ""
    body: Mapping[str, Any] = {}
    entries: tuple[Entry, ...] = ()
    time_s: float = 0.0
    codes: frozenset[str] = frozenset()  # It may have any of these; none: it must be accepted.
    open: bool = False  # whether the texts do not decide about it


def partition_of(key: str, count: int) -> int:
    """The partition of a key, as Java's clients choose it (murmur2)."""
    data, mask = key.encode(), 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * 0x5BD1E995 & mask
        k = (k ^ (k >> 24)) * 0x5BD1E995 & mask
        h = h * 0x5BD1E995 & mask ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * 0x5BD1E995 & mask
    h = (h ^ (h >> 13)) * 0x5BD1E995 & mask
    return ((h ^ (h >> 15)) & 0x7FFFFFFF) % count


def read(record: Seen, run: Run) -> Read:
    """What a record says, and whether it must be rejected whatever lies before it."""
    kind = record.header("event-type") or ROUND
    if len(record.value) > MOST_BYTES or (record.v is None and kind == ROUND):
        return Read(kind, codes=frozenset({"too-large", "malformed"}))
    packed = "msgpack" in record.header("content-type").lower()
    try:
        body = msgspec.msgpack.decode(record.value) if packed else msgspec.json.decode(record.value)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Read(kind, codes=frozenset({"malformed", "too-deep"}))
    if not isinstance(body, dict):
        return Read(kind, codes=frozenset({"malformed"}))
    if kind not in (ROUND, *SEEDS, *CORRECTIONS):
        return Read(kind, codes=frozenset({"malformed"}))
    reasons = Reasons(body)
    ladder = reasons.id("ladder")
    entries: tuple[Entry, ...] = ()
    time_s = 0.0
    if ladder is not None:
        if run.ladders is not None and ladder not in run.ladders:
            reasons.add("unknown-ladder")
        if partition_of(ladder, run.partitions) != record.p:
            reasons.add("wrong-partition")
        if kind != ROUND and ladder in run.corrections_refused:
            reasons.add("corrections-refused")
    if kind == ROUND:
        entries, time_s = _round(reasons, record)
    elif kind in SEEDS:
        time_s = _seed(reasons, kind, record)
    else:
        entries = _correction(reasons, kind)
    return Read(kind, ladder or "", body, entries, time_s, frozenset(reasons.codes), reasons.open)


class Reasons:
    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = body
        self.codes: set[str] = set()
        self.open = False

    def add(self, *codes: str) -> None:
        self.codes.update(codes)

    def id(self, name: str) -> str | None:
        """An id of the body; None, with a reason, if it is not valid."""
        return self.is_id(self.body.get(name))

    def is_id(self, value: object) -> str | None:
        """An id; None, with a reason, if the value is not a valid one."""
        if not isinstance(value, str):
            self.add("bad-id", "malformed")
            return None
        if not 1 <= len(value.encode("utf-8", "surrogatepass")) <= MOST_ID_BYTES:
            self.add("bad-id")
            return None
        return value

    def time(self, name: str) -> float | None:
        """A time of the body, in Unix seconds; None, with a reason, if it is not valid."""
        found = self.body.get(name)
        match = TIME.fullmatch(found) if isinstance(found, str) else None
        if match is None:
            self.add("bad-time", "malformed")
            return None
        if match[4] != "T" or match[9] == "z" or match[7] == "60":
            self.open = True  # RFC 3339 lets a receiver choose
        try:
            zone = "+00:00" if match[9] in "zZ" else match[9]
            moment = datetime.fromisoformat(
                f"{match[1]}-{match[2]}-{match[3]}T{match[5]}:{match[6]}:{match[7]}{zone}"
            )
        except ValueError:
            self.add("bad-time")
            return None
        if moment.astimezone(UTC).year < 1900:
            self.add("bad-time")
        return moment.timestamp()

    def number(self, value: object, code: str) -> float | None:
        """A finite number; None, with a reason, if it is none."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.add(code, "malformed")
            return None
        if not math.isfinite(value):
            self.add(code)
            return None
        return float(value)


def _round(reasons: Reasons, record: Seen) -> tuple[tuple[Entry, ...], float]:
    reasons.id("round_id")
    time_s = reasons.time("completed_at")
    if time_s is not None and record.ts:
        ahead_s = time_s - record.ts / 1000.0
        if ahead_s > MOST_SKEW_S:
            reasons.add("bad-time")
        reasons.open |= abs(ahead_s - MOST_SKEW_S) < 1.0
    weight = reasons.body.get("weight")
    found = None if weight is None else reasons.number(weight, "bad-weight")
    if found is not None and not 0.0 < found <= MOST_WEIGHT:
        reasons.add("bad-weight")
    ceiling = reasons.body.get("performance_ceiling")
    if ceiling is not None:
        reasons.number(ceiling, "malformed")
    return standings(reasons), time_s or 0.0


def standings(reasons: Reasons) -> tuple[Entry, ...]:
    given = reasons.body.get("standings")
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        reasons.add("malformed")
        return ()
    if len(given) < 2:
        reasons.add("too-few-entries")
    entries = [_entry(reasons, each) for each in given]
    players = [player for entry in entries for player in entry.players]
    if len(set(players)) < len(players):
        reasons.add("duplicate-player")
    return tuple(entries)


def _entry(reasons: Reasons, given: Mapping[str, Any]) -> Entry:
    player, team, rank = given.get("player"), given.get("team"), given.get("rank")
    if (player is None) == (team is None) or (team is not None and not isinstance(team, list)):
        reasons.add("malformed", "bad-id")
        return Entry((), None)
    members = [player] if team is None else team
    if not members:
        reasons.add("malformed", "bad-id", "too-few-entries")
    players = tuple(each for each in map(reasons.is_id, members) if each is not None)
    _shares(reasons, given, len(members), is_team=team is not None)
    dnf = given.get("dnf")
    if dnf is True:
        return Entry(players, None)
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        reasons.add("bad-rank", "malformed")
        return Entry(players, None)
    reasons.open |= rank >= 2**31 or dnf not in (None, False)
    return Entry(players, rank)


def _shares(reasons: Reasons, given: Mapping[str, Any], members: int, *, is_team: bool) -> None:
    shares = given.get("shares")
    if shares is None:
        return
    if not isinstance(shares, list) or not is_team:
        reasons.add("bad-shares", "malformed")
        return
    if len(shares) != members:
        reasons.add("bad-shares")
    for each in shares:
        found = reasons.number(each, "bad-shares")
        if found is not None and not 1e-6 <= found <= 1.0:
            reasons.add("bad-shares")


def _seed(reasons: Reasons, kind: str, record: Seen) -> float:
    reasons.id("round_id")
    time_s = reasons.time("at")
    if time_s is not None and record.ts and time_s - record.ts / 1000.0 > MOST_SKEW_S:
        reasons.add("bad-time")
    if kind == "player-reset":
        reasons.id("player")
        reasons.open = True  # the ladder's sigma is not known
        return time_s or 0.0
    given = reasons.body.get("players")
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        reasons.add("malformed")
        return 0.0
    if not 1 <= len(given) <= MOST_SEEDED:
        reasons.add("bad-seed")
    names = [reasons.is_id(each.get("player")) for each in given]
    if len(set(names)) < len(names):
        reasons.add("bad-id")
    for each in given:
        reasons.number(each.get("mu"), "bad-seed")
        for name in ("sigma", "rounds"):
            if each.get(name) is not None:
                reasons.number(each[name], "bad-seed")
        reasons.open = True  # whether the ladder can have these numbers
    return time_s or 0.0


def _correction(reasons: Reasons, kind: str) -> tuple[Entry, ...]:
    entries: tuple[Entry, ...] = ()
    match kind:
        case "round-voided":
            reasons.id("round_id")
        case "round-amended":
            reasons.id("round_id")
            entries = standings(reasons)
            if "completed_at" in reasons.body:
                reasons.time("completed_at")
        case "player-removed":
            reasons.id("player")
            span = [reasons.time(each) for each in ("from", "until") if each in reasons.body]
            if len(span) == 2 and None not in span and span[0] >= span[1]:  # type: ignore[operator]
                reasons.add("bad-time")
        case "player-merged":
            if reasons.id("player") == reasons.id("into"):
                reasons.add("bad-merge")
        case "season-started":
            season = reasons.body.get("season")
            if isinstance(season, bool) or not isinstance(season, int):
                reasons.add("bad-season", "malformed")
            elif season < 1:
                reasons.add("bad-season")
    return entries
