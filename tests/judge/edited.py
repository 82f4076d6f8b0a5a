"""The accepted rounds of a ladder as corrections edit them: who must have an event, and how many
rounds of a player count. They are in columns, since a correction may name any of them."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from tests.judge.accepted import Entry, Read, Reasons

NEVER, EVER = float("-inf"), float("inf")


class Removal(NamedTuple):
    """A player who is taken out of the rounds of a span of time."""

    player: str
    since_s: float
    until_s: float


class Merger(NamedTuple):
    """A player whose rounds are another's."""

    player: str
    into: str


class Verdict(NamedTuple):
    codes: frozenset[str] = frozenset()  # of which any may reject it; none: it is accepted
    open: bool = False  # whether the texts leave it open


class Names:
    """Numbers for the ids of all players of a run."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.names: list[str] = []

    def of(self, name: str) -> int:
        number = self.numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number


class Window:
    """The ids of the valid rounds, seeds and resets among the last W offsets of a partition."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._began = 0
        self._young: dict[tuple[str, str], int] = {}
        self._old: dict[tuple[str, str], int] = {}

    def is_repeated(self, ladder: str, round_id: str, offset: int) -> bool:
        """Whether a valid record with this id lies in the window before; remember this one."""
        if offset - self._began > self._window:
            self._old, self._young, self._began = self._young, {}, offset
        name = ladder, round_id
        earlier = self._young.get(name, self._old.get(name, -1))
        self._young[name] = offset
        return earlier >= 0 and offset - earlier <= self._window


class EditedLadder:
    """The rounds of a ladder, in the order of the log."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._offsets, self._times_s = array("q"), array("d")
        self._hashes = array("I")
        self._ids: list[str] = []
        self._starts, self._players = array("q", [0]), array("i")
        self._entries, self._finished = array("i"), array("b")
        self._changed: dict[int, tuple[tuple[Entry, ...], float]] = {}  # by index, other rounds
        self._voided: set[int] = set()
        self._edits: list[Removal | Merger] = []
        self.seeds: dict[str, tuple[int, tuple[str, ...]]] = {}
        """The last seed or reset of an id: its offset, and its players."""
        self._voided_seeds: set[int] = set()
        self.waiting: list[tuple[int, Read]] = []  # batched corrections, with their offsets
        self.seasons: list[tuple[int, int]] = []  # at which offset which one began
        self.corrections: dict[int, str] = {}  # by offset, the kinds of those with events
        self.deltas: dict[str, list[tuple[int, int]]] = {}
        """By player: by how many rounds a correction at an offset changed the player's count."""
        self.newest_time = ""  # the reported time of the last round, seed or reset
        self.counts: dict[str, int] = {}  # how many rounds of a player count now
        self.seeded: set[str] = set()  # players who began with a seed, without corrections
        self.touched: set[str] = set()  # players whom a correction concerns

    # --- rounds ---

    def add(self, offset: int, read: Read) -> dict[str, int | None]:
        """Add an accepted round. Returns the rank of each player who must have an event of it."""
        number = self._names.of
        self.newest_time = read.body["completed_at"]
        self._offsets.append(offset)
        self._times_s.append(read.time_s)
        self._hashes.append(crc32(read.body["round_id"].encode()))
        self._ids.append(read.body["round_id"])
        for at, entry in enumerate(read.entries):
            for player in entry.players:
                self._players.append(number(player))
                self._entries.append(at)
                self._finished.append(entry.rank is not None)
        self._starts.append(len(self._players))
        due = self._counted(read.entries, read.time_s)
        for player in due:
            self.counts[player] = self.counts.get(player, 0) + 1
        return due

    def season_at(self, offset: int) -> int | None:
        """The season of the ladder at an offset; None before the first one."""
        for began, season in reversed(self.seasons):
            if began < offset:
                return season
        return None

    def counted_between(self, player: str, first: int, last: int) -> int:
        """By how many rounds corrections at offsets in (first, last] changed a player's count."""
        return sum(by for offset, by in self.deltas.get(player, ()) if first < offset <= last)

    def _counted(self, entries: Iterable[Entry], time_s: float) -> dict[str, int | None]:
        """The ranks of the players of a round after all edits; none if it says nothing."""
        if self._edits:
            entries = self._edited(entries, time_s)
        entries = [each for each in entries if each.players]
        if len(entries) < 2 or all(each.rank is None for each in entries):
            return {}
        return {player: each.rank for each in entries for player in each.players}

    def _edited(self, entries: Iterable[Entry], time_s: float) -> list[Entry]:
        found = list(entries)
        for edit in self._edits:
            standing = {player for each in found for player in each.players}
            if edit.player not in standing:
                continue
            if isinstance(edit, Merger) and edit.into not in standing:
                new: tuple[str, ...] = (edit.into,)
            elif isinstance(edit, Merger) or edit.since_s <= time_s < edit.until_s:
                new = ()
            else:
                continue
            found = [
                each._replace(players=tuple(_replaced(each.players, edit.player, new)))
                for each in found
            ]
        return found

    def _standings(self, index: int) -> tuple[tuple[Entry, ...], float]:
        """The reported standings of a round, and its time. Ranks are 1 for all who finished."""
        if index in self._changed:
            return self._changed[index]
        found: dict[int, Entry] = {}
        for i in range(self._starts[index], self._starts[index + 1]):
            entry = found.get(self._entries[i], Entry((), 1 if self._finished[i] else None))
            name = self._names.names[self._players[i]]
            found[self._entries[i]] = entry._replace(players=(*entry.players, name))
        return tuple(found.values()), self._times_s[index]

    def _players_of(self, index: int) -> set[str]:
        return set() if index in self._voided else set(self._counted(*self._standings(index)))

    def _index_of(self, round_id: str) -> int | None:
        hashes = np.frombuffer(self._hashes, np.uint32)
        for index in np.flatnonzero(hashes == crc32(round_id.encode()))[::-1].tolist():
            if self._ids[index] == round_id:
                return index
        return None

    def _with(self, *players: str) -> list[int]:
        """The rounds in which one of these players may stand."""
        wanted = set(players)
        for edit in reversed(self._edits):
            if isinstance(edit, Merger) and edit.into in wanted:
                wanted.add(edit.player)
        numbers = [self._names.numbers[each] for each in wanted if each in self._names.numbers]
        places = np.flatnonzero(np.isin(np.frombuffer(self._players, np.int32), numbers))
        starts = np.frombuffer(self._starts, np.int64)
        found = set((np.searchsorted(starts, places, "right") - 1).tolist())
        return sorted(found | self._changed.keys())

    # --- corrections ---

    def verdict(self, read: Read) -> Verdict:
        """Whether a correction can be carried out now."""
        body = read.body
        match read.kind:
            case "round-voided" | "round-amended":
                return self._verdict_of_round(read.kind, body["round_id"])
            case "player-removed":
                return self._known(body["player"], seeds=body.get("seed") is True)
            case "player-merged":
                return self._verdict_of_merger(body["player"], body["into"])
            case "season-started":
                last = self.seasons[-1][1] if self.seasons else 0
                return Verdict(frozenset({"bad-season"} if body["season"] <= last else ()))
        return Verdict()

    def _verdict_of_round(self, kind: str, round_id: str) -> Verdict:
        index, seed = self._index_of(round_id), self.seeds.get(round_id)
        if seed is not None and (index is None or self._offsets[index] < seed[0]):
            if kind == "round-amended":
                return Verdict(frozenset({"bad-amend"}))
            voided = seed[0] in self._voided_seeds
            return Verdict(frozenset({"already-voided"} if voided else ()))
        if index is None:
            return Verdict(frozenset({"unknown-round"}))
        if kind == "round-voided" and index in self._voided:
            return Verdict(frozenset({"already-voided"}))
        return Verdict()

    def _known(self, player: str, *, seeds: bool = False) -> Verdict:
        if self.counts.get(player, 0) > 0:
            return Verdict()
        has_seed = any(player in players for _, players in self.seeds.values())
        stands = player in self._names.numbers and bool(self._with(player))
        return Verdict(frozenset({"unknown-player"}), open=stands or (seeds and has_seed))

    def _verdict_of_merger(self, player: str, into: str) -> Verdict:
        known = [self._known(each) for each in (player, into)]
        if any(each.codes for each in known):
            return Verdict(frozenset({"unknown-player", "bad-merge"}), any(e.open for e in known))
        met = any({player, into} <= self._players_of(each) for each in self._with(player))
        seeds = any({player, into} <= set(players) for _, players in self.seeds.values())
        if met:
            return Verdict(frozenset({"bad-merge"}))
        others = any(
            {player, into} <= {p for entry in self._standings(each)[0] for p in entry.players}
            for each in self._with(player)
        )
        return Verdict(frozenset({"bad-merge"} if others else ()), open=others or seeds)

    def correct(self, offset: int, read: Read) -> None:
        """Carry out an accepted correction, whose events name this offset."""
        body, before = read.body, dict[int, set[str]]()
        self.corrections[offset] = read.kind
        match read.kind:
            case "round-voided" | "round-amended":
                index = self._index_of(body["round_id"])
                seed = self.seeds.get(body["round_id"])
                if seed is not None and (index is None or self._offsets[index] < seed[0]):
                    self._voided_seeds.add(seed[0])
                    self.touched.update(seed[1])
                    return
                assert index is not None
                before = {index: self._players_of(index)}
                if read.kind == "round-voided":
                    self._voided.add(index)
                else:
                    self._amend(index, read)
            case "player-removed" | "player-merged":
                before = {each: self._players_of(each) for each in self._with(body["player"])}
                self._edits.append(_edit(body))
                self.touched.update({body["player"], body.get("into", body["player"])})
            case "season-started":
                self.seasons.append((offset, body["season"]))
        self._recount(offset, before)

    def _amend(self, index: int, read: Read) -> None:
        _, time_s = self._standings(index)
        if "completed_at" in read.body:
            time_s = Reasons(read.body).time("completed_at") or time_s
        self._changed[index] = read.entries, time_s
        self._voided.discard(index)

    def _recount(self, offset: int, before: Mapping[int, set[str]]) -> None:
        changed: dict[str, int] = {}
        for index, was in before.items():
            now = self._players_of(index)
            for player in was ^ now:
                changed[player] = changed.get(player, 0) + (1 if player in now else -1)
        self.touched.update(changed)
        for player, by in changed.items():
            if by:
                self.deltas.setdefault(player, []).append((offset, by))
                self.counts[player] = self.counts.get(player, 0) + by


def _replaced(players: tuple[str, ...], old: str, new: tuple[str, ...]) -> Iterator[str]:
    for each in players:
        yield from new if each == old else (each,)


def _edit(body: Mapping[str, Any]) -> Removal | Merger:
    if "into" in body:
        return Merger(body["player"], body["into"])
    since_s, until_s = (
        Reasons(body).time(name) if name in body else None for name in ("from", "until")
    )
    return Removal(
        body["player"], NEVER if since_s is None else since_s,
        EVER if until_s is None else until_s,
    )  # fmt: skip
