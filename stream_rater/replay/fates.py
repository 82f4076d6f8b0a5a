"""Whose the entries under each reported name are, after removals and merges, then and now.

All versions share one list of what was said of each player, with one item for each correction. So
they take memory in proportion to the corrections, not to its square, and a version costs nothing
until somebody asks it.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Hashes
from stream_rater.columns.strings import StringColumn

Span = tuple[int, int]
"""The times of rounds: from the first to before the second, Unix seconds."""


class Fate(NamedTuple):
    """What has become of the entries that are reported under a name."""

    now: str
    """Whose they are."""
    out: tuple[Span, ...] = ()
    """They are taken out of rounds completed in these spans."""

    def is_out(self, time: int) -> bool:
        """Whether an entry of a round of this time is taken out."""
        return any(since <= time < until for since, until in self.out)


class Fates:
    """What was said of a ladder's players, in order. Nothing that was said is taken back, so what
    holds at a version stays as it is."""

    def __init__(self) -> None:
        self.version = 0
        """How many things were said."""
        self._said: dict[str, list[tuple[int, Span | str]]] = {}
        """By player, in order: the version from which on it holds; and a span in which the player's
        entries are taken out, or whose they became."""
        self._first: list[int] = []
        """The version from which on each of these players is in `_said`, in that order."""
        self._names: dict[str, list[str]] = {}
        """By player, the reported names whose entries are the player's now, where these are not
        the player's own name alone."""
        self._hashes: Hashes = np.empty(0, np.uint64)
        """Of the first names in `_said`, sorted."""

    @classmethod
    def after(cls, view: "FatesAt") -> "Fates":
        """What was said up to a version, to go on from."""
        found = cls()
        for version, player, what in sorted(view.said(), key=lambda each: each[0]):
            found.version = version - 1
            found._say(player, what)
            if isinstance(what, str):
                found._give(player, what)
        return found

    def remove(self, player: str, span: Span) -> None:
        """The entries that are the player's now are taken out of rounds completed in this span."""
        self._say(player, span)

    def merge(self, player: str, into: str) -> None:
        """What is the player's is another's from now on."""
        self._say(player, into)
        self._give(player, into)

    def _say(self, player: str, what: Span | str) -> None:
        self.version += 1
        if player not in self._said:
            self._first.append(self.version)
        self._said.setdefault(player, []).append((self.version, what))

    def _give(self, player: str, into: str) -> None:
        if player == into:
            return
        given, own = self.names_of(player), self.names_of(into)
        few, many = sorted((given, own), key=len)
        many.extend(few)
        self._names[player] = []
        self._names[into] = many

    def names_of(self, player: str) -> list[str]:
        """The reported names whose entries are this player's now."""
        return self._names.get(player) or ([] if player in self._names else [player])

    def now(self) -> "FatesAt":
        """What holds now, however much is said later."""
        return self.at(self.version)

    def at(self, version: int) -> "FatesAt":
        """What held at a version."""
        return FatesAt(self, version)

    def hashes(self) -> Hashes:
        """Of all names that anything was said of until now, sorted."""
        if new := len(self._said) - len(self._hashes):
            names = list(self._said)[-new:]
            self._hashes = np.sort(np.append(self._hashes, StringColumn.of(names).hashes))
        return self._hashes

    def said_of(self, player: str) -> list[tuple[int, Span | str]]:
        """What was said of a player, in order, with the version from which on it holds."""
        return self._said.get(player, [])

    def players(self, version: int) -> Iterator[str]:
        """Those of whom anything was said up to a version."""
        for player, first in zip(self._said, self._first, strict=True):
            if first > version:
                return
            yield player


class FatesAt(Mapping[str, Fate]):
    """By reported name, what corrections have made of its entries, at one version."""

    def __init__(self, fates: Fates, version: int) -> None:
        self._fates = fates
        self._version = version
        self._found: dict[str, Fate] = {}

    def __getitem__(self, name: str) -> Fate:
        if name not in self:
            raise KeyError(name)
        return self.of(name)

    def of(self, name: str) -> Fate:
        """The fate of a name, whether or not corrections have touched it."""
        found = self._found.get(name)
        if found is None:
            found = self._follow(name)
            if name in self:
                self._found[name] = found
        return found

    def _follow(self, name: str) -> Fate:
        """Whoever is merged shares what is said of the other from then on."""
        now, since, out = name, 0, list[Span]()
        while True:
            into = ""
            for version, what in self._fates.said_of(now):
                if not since < version <= self._version:
                    continue
                if isinstance(what, str):
                    into, since = what, version
                    break
                out.append(what)
            if not into:
                return Fate(now, tuple(out))
            now = into

    def __iter__(self) -> Iterator[str]:
        return self._fates.players(self._version)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return self._version > 0

    def __contains__(self, name: object) -> bool:
        said = self._fates.said_of(name) if isinstance(name, str) else []
        return bool(said) and said[0][0] <= self._version

    def said(self) -> Iterator[tuple[int, str, Span | str]]:
        """All that was said up to this version: from which version on it holds, of whom, what."""
        for player in self:
            for version, what in self._fates.said_of(player):
                if version <= self._version:
                    yield version, player, what

    def may_have(self, hashes: Hashes) -> Flags:
        """(n,) whether a name with each hash may be here. A false yes is possible."""
        known = self._fates.hashes()
        if not len(known):
            return np.zeros(len(hashes), np.bool_)
        place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        found: Flags = known[place] == hashes
        return found


NO_FATES = FatesAt(Fates(), 0)
"""No corrections."""
