"""Computes which player owns the entries under each reported name after removals and merges.

The state after each correction is a version. All versions share one list of changes per player,
with one item for each correction. So memory grows linearly with the number of corrections, not with
its square, and a version costs nothing until it is read.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Hashes
from stream_rater.columns.strings import StringColumn
from stream_rater.rounds.correction_records import Span

Change = Span | str
"""The effect of a correction on a player: a span in which the player's entries are removed, or the
name of the player into whom this one is merged."""


class EntryEdit(NamedTuple):
    """The effect of corrections on the entries that are reported under one name."""

    player: str
    """The player who owns the entries."""
    removed: tuple[Span, ...] = ()
    """The spans of time in which rounds lose the entries."""

    def is_removed(self, time: int) -> bool:
        """Whether an entry is removed from a round that was completed at this time (Unix
        seconds)."""
        return any(span.has(time) for span in self.removed)

    def is_unseeded(self, time: int) -> bool:
        """Whether a row is removed from a seed or a reset of this time (Unix seconds)."""
        return any(span.seeds and span.has(time) for span in self.removed)


class EntryEdits:
    """The changes of a ladder's players, in order. No change is ever undone, so the state at a
    version stays the same."""

    def __init__(self) -> None:
        self.version = 0
        """The number of changes."""
        self._changes: dict[str, list[tuple[int, Change]]] = {}
        """For each player, the changes in order, each with the first version that includes it."""
        self._first: list[int] = []
        """The first version in which each player of `_changes` has a change, in the order of
        `_changes`."""
        self._names: dict[str, list[str]] = {}
        """For each player, the reported names whose entries the player owns now. A player may be
        absent if the only such name is the player's own."""
        self._hashes: Hashes = np.empty(0, np.uint64)
        """The sorted hashes of the first names in `_changes`; names that were added later are
        missing."""

    @classmethod
    def after(cls, view: "EntryEditsAt") -> "EntryEdits":
        """Copy the changes up to a version, so that more can be added."""
        found = cls()
        for version, player, change in sorted(view.changes(), key=lambda each: each[0]):
            found.version = version - 1
            found._add(player, change)
            if isinstance(change, str):
                found._transfer(player, change)
        return found

    def remove(self, player: str, span: Span) -> None:
        """Remove the entries that the player owns now from the rounds that were completed in this
        span."""
        self._add(player, span)

    def merge(self, player: str, into: str) -> None:
        """Make the player `into` the owner of this player's entries from now on."""
        self._add(player, into)
        self._transfer(player, into)

    def _add(self, player: str, change: Change) -> None:
        self.version += 1
        if player not in self._changes:
            self._first.append(self.version)
        self._changes.setdefault(player, []).append((self.version, change))

    def _transfer(self, player: str, into: str) -> None:
        if player == into:
            return
        moved, own = self.names_of(player), self.names_of(into)
        few, many = sorted((moved, own), key=len)
        many.extend(few)
        self._names[player] = []
        self._names[into] = many

    def names_of(self, player: str) -> list[str]:
        """The reported names whose entries this player owns now."""
        return self._names.get(player) or ([] if player in self._names else [player])

    def now(self) -> "EntryEditsAt":
        """The state after all changes so far. Later changes do not affect it."""
        return self.at(self.version)

    def at(self, version: int) -> "EntryEditsAt":
        """The state at a version."""
        return EntryEditsAt(self, version)

    def hashes(self) -> Hashes:
        """The sorted hashes of all names with a change so far."""
        if new := len(self._changes) - len(self._hashes):
            names = list(self._changes)[-new:]
            self._hashes = np.sort(np.append(self._hashes, StringColumn.of(names).hashes))
        return self._hashes

    def changes_of(self, player: str) -> list[tuple[int, Change]]:
        """The changes of a player in order, each with the first version that includes it."""
        return self._changes.get(player, [])

    def players(self, version: int) -> Iterator[str]:
        """Yield the players with a change up to a version."""
        for player, first in zip(self._changes, self._first, strict=True):
            if first > version:
                return
            yield player


class EntryEditsAt(Mapping[str, EntryEdit]):
    """The effect of corrections on the entries under each reported name at one version. The mapping
    has only the names that corrections affect."""

    def __init__(self, edits: EntryEdits, version: int) -> None:
        self._edits = edits
        self._version = version
        self._found: dict[str, EntryEdit] = {}

    def __getitem__(self, name: str) -> EntryEdit:
        if name not in self:
            raise KeyError(name)
        return self.of(name)

    def of(self, name: str) -> EntryEdit:
        """The edit of a name's entries. Works for every name, also for one that no correction
        affects."""
        found = self._found.get(name)
        if found is None:
            found = self._collect(name)
            if name in self:
                self._found[name] = found
        return found

    def _collect(self, name: str) -> EntryEdit:
        """Collect the edit of a name. From a merge on, the changes of the player `into` apply to
        the merged player, too."""
        player, since, removed = name, 0, list[Span]()
        while True:
            into = ""
            for version, change in self._edits.changes_of(player):
                if not since < version <= self._version:
                    continue
                if isinstance(change, str):
                    into, since = change, version
                    break
                removed.append(change)
            if not into:
                return EntryEdit(player, tuple(removed))
            player = into

    def __iter__(self) -> Iterator[str]:
        return self._edits.players(self._version)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return self._version > 0

    def __contains__(self, name: object) -> bool:
        changes = self._edits.changes_of(name) if isinstance(name, str) else []
        return bool(changes) and changes[0][0] <= self._version

    def changes(self) -> Iterator[tuple[int, str, Change]]:
        """Yield all changes up to this version: the first version that includes the change, the
        player, and the change."""
        for player in self:
            for version, change in self._edits.changes_of(player):
                if version <= self._version:
                    yield version, player, change

    def may_have(self, hashes: Hashes) -> Flags:
        """(n,) whether a name with each hash may be in this mapping. A false positive is
        possible."""
        known = self._edits.hashes()
        if not len(known):
            return np.zeros(len(hashes), np.bool_)
        place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        found: Flags = known[place] == hashes
        return found


NO_ENTRY_EDITS = EntryEditsAt(EntryEdits(), 0)
"""The state without any correction."""
