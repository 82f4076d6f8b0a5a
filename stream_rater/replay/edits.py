"""Applies the accepted corrections of a ladder to its rounds. All code that edits the log uses this
module.

A round keeps its place in the order. Corrections decide which players count in it:

- a voided round changes no rating;
- an amended round has other standings;
- a removed player's entries are removed from the rounds completed in some span of time;
- a merged player's entries count as those of another player. If several entries of a round would
  then belong to one player, only one of them stays: the entry reported under that player's name or,
  if there is none, the entry with the least reported name.

Seeds and resets are edited in the same way, except that a removal concerns them only if it says so,
and that they cannot be amended.

A round that is left with fewer than two entries changes no rating. Corrections never change which
rounds were accepted.

The state of a ladder's players after each correction is a version. All versions share one list of
changes per player, with one item for each correction. So memory grows linearly with the number of
corrections, not with its square, and a version costs nothing until it is read.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from stream_rater.columns import ranges, strings
from stream_rater.columns.arrays import Flags, Hashes, Ints
from stream_rater.contract.corrections import SeasonStarted
from stream_rater.rating.parameters import Season
from stream_rater.rounds import validation
from stream_rater.rounds.batch import RoundBatch, of_entries
from stream_rater.rounds.correction_records import Seed, Span

K = TypeVar("K", bound=Hashable)

Change = Span | str
"""The effect of a correction on a player: a span in which the player's entries are removed, or the
name of the player into whom this one is merged."""


class EntryEdit(NamedTuple):
    """The effect of corrections on the entries that are reported under one name."""

    player: str  # The player who owns the entries.
    removed: tuple[Span, ...] = ()  # The spans of time in which rounds lose the entries.

    def is_removed(self, time: int, *, seeds: bool = False) -> bool:
        """Whether an entry is removed from a round that was completed at this Unix time. With
        `seeds`: whether a row is removed from a seed or a reset of this time."""
        return any(span.has(time) for span in self.removed if span.seeds or not seeds)


class EntryEdits:
    """The changes of a ladder's players, in order. No change is ever undone, so the state at a
    version stays the same."""

    def __init__(self) -> None:
        self.version = 0
        """The number of changes."""
        self._changes: dict[str, list[tuple[int, Change]]] = {}
        """For each player, the changes in order, each with the first version that includes it."""
        self._first: list[int] = []
        """The first version in which each player of `_changes` has a change, in the same order."""
        self._names: dict[str, list[str]] = {}
        """For each player, the reported names whose entries the player owns now. A player may be
        absent if the only such name is the player's own."""
        self._hashes: Hashes = np.empty(0, np.uint64)
        """The sorted hashes of names in `_changes`; those of the latest are missing."""

    @classmethod
    def after(cls, view: "EntryEditsAt") -> "EntryEdits":
        """Copy the changes up to a version, so that more can be added."""
        found = cls()
        for version, player, change in sorted(view.changes(), key=lambda each: each[0]):
            found.version = version - 1
            found.add(player, change)
        return found

    def add(self, player: str, change: Change) -> None:
        """Remove the entries that the player owns now from the rounds that were completed in a
        span, or make another player the owner of this player's entries from now on."""
        self.version += 1
        if player not in self._changes:
            self._first.append(self.version)
        self._changes.setdefault(player, []).append((self.version, change))
        if isinstance(change, str) and change != player:
            few, many = sorted((self.names_of(player), self.names_of(change)), key=len)
            many.extend(few)
            self._names[player], self._names[change] = [], many

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
            self._hashes = np.sort(np.append(self._hashes, strings.StringColumn.of(names).hashes))
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
        """The edit of a name's entries. Works also for a name that no correction affects."""
        found = self._found.get(name)
        if found is None:
            found = self._collect(name)
            if name in self:
                self._found[name] = found
        return found

    def players_of(
        self, names: Sequence[str], time: int, *, seeds: bool = False
    ) -> list[str | None]:
        """The owner of each entry of a round that was completed at `time` (Unix seconds). `names`
        are the reported names of the entries. None for a removed entry. With `seeds`, the names and
        the time are those of a seed or a reset."""
        now: list[str | None] = []
        for name in names:
            edit = self.of(name)
            now.append(None if edit.is_removed(time, seeds=seeds) else edit.player)
        stays: dict[str, str] = {}
        for name, player in zip(names, now, strict=True):
            if player is not None:
                stays[player] = min(stays.get(player, name), name, key=lambda n: (n != player, n))
        both = zip(names, now, strict=True)
        return [own if own is None or stays[own] == name else None for name, own in both]

    def _collect(self, name: str) -> EntryEdit:
        """Collect the edit of a name. From a merge on, the changes of `into` apply to it, too."""
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
        """Yield each change up to this version: its version, the player, and the change."""
        for player in self:
            for version, change in self._edits.changes_of(player):
                if version <= self._version:
                    yield version, player, change

    def may_have(self, hashes: Hashes) -> Flags:
        """(n,) whether a name with each hash may be in this mapping; false positives occur."""
        known = self._edits.hashes()
        if not len(known):
            return np.zeros(len(hashes), np.bool_)
        place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        found: Flags = known[place] == hashes
        return found


NO_ENTRY_EDITS = EntryEditsAt(EntryEdits(), 0)  # The state without any correction.


# --- the edits of rounds --------------------------------------------------------------------------


class StartedSeason(NamedTuple):
    """A season that has started."""

    offset: int  # The offset of its record. The season holds for the rounds after it.
    season: Season

    @classmethod
    def of(cls, started: SeasonStarted, offset: int) -> "StartedSeason":
        """The season that the correction at this offset starts."""
        return cls(offset, Season(started.season, started.keep, started.sigma))


@dataclass(frozen=True)
class Edits:
    """The accepted corrections of one ladder."""

    entries: EntryEditsAt = field(default_factory=lambda: NO_ENTRY_EDITS)
    """For each reported name that removals and merges affect, the edit of its entries."""
    voided: frozenset[int] = frozenset()  # The offsets of voided rounds.
    amended: Mapping[int, RoundBatch] = field(default_factory=dict)
    """Each amended round with its new content, by its offset."""
    seasons: tuple[StartedSeason, ...] = ()

    def names_of(self, player: str) -> list[str]:
        """The reported names whose entries this player owns now. Looks at all entry edits."""
        names = [name for name, edit in self.entries.items() if edit.player == player]
        return names if player in self.entries else [*names, player]

    @cached_property
    def started(self) -> tuple[Season, ...]:
        """The seasons that have started, in order."""
        return tuple(each.season for each in self.seasons)

    def started_before(self, offset: int) -> tuple[Season, ...]:
        """The seasons that hold for a round at this offset, in order."""
        return tuple(each.season for each in self.seasons if each.offset < offset)

    @property
    def change_rounds(self) -> bool:
        """Whether any round differs from what was reported."""
        return bool(self.entries or self.voided or self.amended)

    def touched(self, rounds: RoundBatch, offsets: Ints) -> Ints:
        """The indices of rounds that may change, among R that were read at these offsets."""
        found = np.isin(offsets, self._offsets)
        if self.entries:
            known = self.entries.may_have(rounds.names.hashes)
            starts = ranges.bounds(rounds.sizes)[:-1]
            found |= np.logical_or.reduceat(known, starts) if len(rounds) else False
        return np.flatnonzero(found)

    @cached_property
    def _offsets(self) -> Ints:
        return np.array([*self.voided, *self.amended], np.int64)

    def edited(self, round_: RoundBatch, offset: int) -> RoundBatch | None:
        """One round after the corrections; None if it changes no rating any more. An amended round
        is rated by the rule of the reported one, which is at its offset."""
        if offset in self.voided:
            return None
        if (amended := self.amended.get(offset)) is not None:
            round_ = msgspec.structs.replace(
                amended, config_index=round_.config_index, unknown=round_.unknown
            )
        names = round_.names.texts()
        now = self.entries.players_of(names, int(round_.time[0]))
        if now == names:
            return round_
        edited = _with_owners(round_, now)
        return edited if len(edited.place) >= validation.MIN_ENTRIES else None

    def count_differences(self, other: "Edits", rounds: RoundBatch, offsets: Ints) -> int:
        """The number of R rounds, at these (R,) offsets, that `other` edits otherwise."""
        found = 0
        for i in np.union1d(self.touched(rounds, offsets), other.touched(rounds, offsets)).tolist():
            own, offset = rounds.slice(i, i + 1), int(offsets[i])
            found += _content(self.edited(own, offset)) != _content(other.edited(own, offset))
        return found

    def seed(self, seed: Seed) -> Seed | None:
        """A seed or a reset after the corrections; None if it changes no belief any more."""
        if seed.offset in self.voided:
            return None
        if not self.entries or not self.entries.may_have(seed.names.hashes).any():
            return seed
        names = seed.names.texts()
        now = self.entries.players_of(names, seed.time, seeds=True)
        if now == names:
            return seed
        rows = np.flatnonzero([each is not None for each in now])
        owners = strings.StringColumn.of([each for each in now if each is not None])
        return seed.take(rows, owners) if len(rows) else None

    def changes_seed(self, other: "Edits", seed: Seed) -> bool:
        """Whether a seed or a reset differs between these edits and `other`."""
        return _content(self.seed(seed)) != _content(other.seed(seed))


NO_EDITS = Edits()


def edited(
    rounds: RoundBatch, offsets: Ints, edits_of: Callable[[str, int], Edits]
) -> tuple[RoundBatch, Flags]:
    """R rounds after the corrections, and (R,) whether each still has at least two entries. The
    rounds were read at these (R,) offsets. `edits_of` returns the edits of a ladder's round at an
    offset. A round with fewer than two entries is returned as it was reported, and must not be
    rated. If no round may change, the same object is returned."""
    counts = np.ones(len(rounds), np.bool_)
    heads = zip(rounds.heads, offsets.tolist(), strict=True)
    edits = [edits_of(head.ladder, offset) for head, offset in heads]
    touched = list[int]()
    for places in indices_by(map(id, edits)).values():
        own = edits[places[0]]
        if own.change_rounds:
            some = rounds if len(places) == len(rounds) else rounds.take(places)
            touched += places[own.touched(some, offsets[places])].tolist()
    if not touched:
        return rounds, counts
    parts, first = list[RoundBatch](), 0
    for i in sorted(touched):
        reported = rounds.slice(i, i + 1)
        now = edits[i].edited(reported, int(offsets[i]))
        counts[i] = now is not None
        parts += [rounds.slice(first, i), reported if now is None else now]
        first = i + 1
    return RoundBatch.concat([*parts, rounds.slice(first, len(rounds))]), counts


def indices_by(keys: Iterable[K]) -> dict[K, Ints]:
    """The indices at which each key is in `keys`. The result is in order of first appearance."""
    found: dict[K, list[int]] = {}
    for i, key in enumerate(keys):
        found.setdefault(key, []).append(i)
    return {key: np.array(places, np.int64) for key, places in found.items()}


def _with_owners(round_: RoundBatch, players: Sequence[str | None]) -> RoundBatch:
    """One round with these players in place of its own. None stands for a removed player."""
    stays = np.array([each is not None for each in players], np.bool_)
    spans = pairwise(ranges.bounds(round_.members).tolist())
    members = np.array([np.count_nonzero(stays[a:b]) for a, b in spans], np.int64)
    entries = np.flatnonzero(members)
    names = strings.StringColumn.of([each for each in players if each is not None])
    return msgspec.structs.replace(
        round_, entries=np.array([len(entries)]), sizes=np.array([len(names)]),
        place=round_.place[entries], members=members[entries], share=round_.share[stays],
        names=names, seat=of_entries(round_.seat, entries),
        score=of_entries(round_.score, entries),
    )  # fmt: skip


COMPARED = "time", "weight", "ceiling", "place", "members", "share", "seat", "score"
COMPARED_OF_SEEDS = "mu", "sigma", "rounds"


def _content(of: RoundBatch | Seed | None) -> tuple[object, ...]:
    """What corrections can change in a round or a seed, in a form that can be compared."""
    if of is None:
        return ()
    columns = COMPARED_OF_SEEDS if isinstance(of, Seed) else COMPARED
    return (*(getattr(of, each).tobytes() for each in columns), *of.names.texts())


class Version(NamedTuple):
    """The numbers of accepted corrections, of players and of seasons, at some moment."""

    entries: int
    seasons: int


class EditsSoFar:
    """The accepted corrections of one ladder so far. Adding a correction takes constant time.
    Computing `edits` takes time in proportion to the corrections so far, so use the result for many
    rounds."""

    def __init__(self, base: Edits = NO_EDITS) -> None:
        self.entries = EntryEdits.after(base.entries)
        self.voided = set(base.voided)
        """The same as in Edits, as are the next two attributes."""
        self.amended = dict(base.amended)
        self.seasons = list(base.seasons)
        self._edits: Edits | None = base

    def void(self, offset: int) -> None:
        """Void the round at this offset."""
        self.voided.add(offset)
        self._edits = None

    def amend(self, offset: int, round_: RoundBatch) -> None:
        """Replace the round at this offset. It counts even if it was voided."""
        self.amended[offset] = round_
        self.voided.discard(offset)
        self._edits = None

    def change(self, player: str, change: Change) -> None:
        """Remove the player from the rounds of a span, or merge the player into another one."""
        self.entries.add(player, change)
        self._edits = None

    def start(self, season: StartedSeason) -> None:
        self.seasons.append(season)
        self._edits = None

    @property
    def edits(self) -> Edits:
        """The edits by all corrections so far. Later corrections do not change this object."""
        if self._edits is None:
            self._edits = Edits(
                self.entries.now(), frozenset(self.voided), dict(self.amended), tuple(self.seasons)
            )
        return self._edits

    @property
    def version(self) -> Version:
        """The numbers of corrections of players and seasons so far."""
        return Version(self.entries.version, len(self.seasons))

    def at(self, version: Version) -> Edits:
        """The edits by the corrections of players and seasons up to this version."""
        entries = self.entries.at(version.entries)
        return Edits(entries, seasons=tuple(self.seasons[: version.seasons]))
