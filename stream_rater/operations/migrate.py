"""Writes a log again at another place, and replays it there: `move` as it is, `erase` with a
pseudonym in the place of a player's id.

1. Check that nobody uses the old place, and that all of it is rated.
2. Copy each accepted record to its partition and offset, with an empty record in the place of each
   rejected one, which might be accepted at another time; the events; the ladder events; and the
   standings of past seasons. So all offsets stay as they are.
3. Rebuild the beliefs at the new place, and compare them, and the newest event of each player, with
   those before. Only then the new place may be used, and the old one is given up.

The old log does not change before that. The beliefs do, where both places share a store: then
`rebuild --replace` at the old place computes them again.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from msgspec import structs

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.sharding import shards_of
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import Ladders
from stream_rater.contract import season_ended
from stream_rater.contract.events import offset_of, rating_changed_from_json, shown
from stream_rater.contract.record import Player, Record, header
from stream_rater.operations.compare_store import SET_BY_CORRECTIONS
from stream_rater.operations.corrected_rebuild import LastPublished, last_published
from stream_rater.operations.rebuild import rebuild_from_log
from stream_rater.operations.rewriting import Flagged, Mentions, Pseudonym, flagged, rewritten
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.ports import RecordedCorrection
from stream_rater.places import checks
from stream_rater.places.port import Place
from stream_rater.rating import record as belief_record
from stream_rater.replay.edited_log import Verdicts
from stream_rater.replay.ledger import with_verdicts
from stream_rater.runtime.progress import counted, track, track_batches

T = TypeVar("T")
AFTER_ALL = 2**62  # An offset after all records.

# On a ladder with corrections, a rebuild fills the fields SET_BY_CORRECTIONS in another way than
# workers do. So digests on such a ladder leave these fields out, and a belief without rounds has no
# digest. Seeds and resets are no corrections.
Digests = dict[Player, bytes]


def digests_of(
    batches: Iterable[list[tuple[Player, bytes]]], corrected: Collection[str]
) -> Digests:
    """The digest of each belief. `corrected`: the ladders with corrections. Raises Failed."""
    digests: Digests = {}
    try:
        for batch in batches:
            digests |= {who: _digest(data) for who, data in batch if who[0] not in corrected}
            if others := [belief for belief in batch if belief[0][0] in corrected]:
                decoded = belief_record.decode([data for _, data in others], 0, 0.0, 1.0)
                played = (decoded.header["rounds"] > 0).tolist()
                for name in SET_BY_CORRECTIONS:
                    decoded.header[name] = 0
                normalized = zip(others, belief_record.encode(decoded), played, strict=True)
                digests |= {who: _digest(data) for (who, _), data, counts in normalized if counts}
    except belief_record.UnknownRecord as error:
        raise Failed(str(error)) from None
    return digests


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def difference(before: Mapping[Player, bytes], after: Mapping[Player, bytes]) -> str:
    """How the digests of two stores differ: how many players, and one of them. Empty if equal."""
    missing = [player for player in before if player not in after]
    surplus = [player for player in after if player not in before]
    differing = [player for player, data in after.items() if before.get(player, data) != data]
    if not (every := [*differing, *missing, *surplus]):
        return ""
    ladder, player = map(shown, every[0])
    return (
        f"{len(differing)} beliefs are different, {len(missing)} missing and {len(surplus)} too "
        f"many, first ladder {ladder!r}, player {player!r}"
    )


class Migration:
    """The steps that copy a log from one place to another and replay it there."""

    def __init__(
        self, source: Place, target: Place, ladders: Ladders, pseudonym: Pseudonym | None,
        outcome: str,
    ) -> None:  # fmt: skip
        """`pseudonym`: None copies all. `outcome`: what has not happened if a check fails."""
        self._source, self._target, self._ladders = source, target, ladders
        self._pseudonym, self._outcome = pseudonym, outcome
        self._corrected: frozenset[str] = frozenset()  # The ladders with corrections.
        self._newest: Mapping[Player, LastPublished] = {}
        """What the newest event of each player in the old place says, under the new name."""
        self.ends: Sequence[int] = ()  # The end of each partition of the rounds.
        self.keys: dict[tuple[int, bytes | None], None] = {}
        """The partition and key of each event of the player in the old place; each pair once."""

    # --- 1 ---

    def check(self) -> None:
        """Check that nobody uses the old place, and that these ladders rated all of it. Raises
        Failed, BadConfiguration or LayoutMismatch."""
        source = self._source
        for each in (source, self._target):
            each.check_idle()
        if self._pseudonym is None:  # otherwise, `successor` has checked them
            source.check_ratings()
        check_kernel(source.kernel())
        corrections = checks.agreed(source, self._ladders, self._outcome).corrections
        self._corrected = frozenset(corrections)
        if self._pseudonym is not None:
            check_none_deferred(corrections)
        for _ in checks.whole_seasons(source.standings(marks=True)):
            pass
        self.ends = source.check_finished()

    def search(self) -> Mentions:
        """Validate the log, and count the records that name the player."""
        return mentions_in(self._source, self._ladders, self._pseudonym)

    # --- 2 ---

    def copy(self, mentions: Mentions) -> None:
        """Fill the new place. Raises Failed if the old place has changed since `check`."""
        source, target = self._source, self._target
        target.begin_copy(source)
        target.append(self._rounds(mentions.verdicts))
        target.copy_events(self._events())
        kept = self._pseudonym.ladder_events if self._pseudonym else lambda message: [message]
        target.note([*chain.from_iterable(map(kept, source.ladder_events()))])
        target.write_standings(self._standings())
        target.commit_rounds(dict(enumerate(self.ends)))
        target.begin_parts(source)
        source.check_unchanged(self.ends)

    def _rounds(self, verdicts: Verdicts | None) -> Iterator[Record]:
        records = _flagged(self._source, self._ladders, verdicts, "copying rounds")
        return rewritten(records, dict(enumerate(self.ends)), self._pseudonym)

    def _events(self) -> Iterator[Record]:
        source, pseudonym = self._source, self._pseudonym
        self._newest = _newest(source)
        if pseudonym is None:
            yield from self._newest_events()
            return
        self._newest = self._renamed(self._newest)
        newest: dict[bytes | None, Record] = {}
        (home,) = shards_of([pseudonym.name], self._target.shards).tolist()
        for record in track(source.events(), "copying ratings"):
            if not pseudonym.is_key(key := record.key):
                yield record
                continue
            self.keys[record.partition, key] = None
            renamed = pseudonym.event(record)
            if self._target.keeps_offsets:
                yield renamed
                continue
            # The player's newest events are sent last: they move from several partitions into one,
            # where compaction keeps the last of each ladder.
            renamed = structs.replace(renamed, partition=home)
            *older, newest[key] = sorted(
                filter(None, (newest.get(key), renamed)), key=lambda each: offset_of(each.value)
            )
            yield from older
        yield from newest.values()

    def _newest_events(self) -> Iterator[Record]:
        """Yield each player's newest event, with its partition in the new place."""
        shards = self._target.shards
        for each in self._source.events():
            event = rating_changed_from_json(each.value) if each.value else None
            newest = event and self._newest.get((event.ladder, event.player))
            if event and newest and event.offset == newest.offset:
                (home,) = shards_of([event.player], shards).tolist()
                yield structs.replace(each, partition=home)

    def _standings(self) -> Iterator[Record]:
        pseudonym = self._pseudonym
        for record in checks.whole_seasons(self._source.standings()):
            found = season_ended.decoded(record)
            if pseudonym is not None and (
                isinstance(found, season_ended.Standing) and found.player == pseudonym.player
            ):
                renamed = structs.replace(found, player=pseudonym.name)
                yield season_ended.encoded(renamed, header(record.headers, "ce_time"))
            else:
                yield record

    # --- 3 ---

    def rebuild(self) -> int:
        """Rebuild the beliefs at the new place, and return their number. Raises Failed if a belief
        or a newest event (if it may be read) differs from that in the old place, or if something
        else uses the new place, or has changed the old one since `check`."""
        source, target = self._source, self._target
        before = self._renamed(self._digests(source, f"beliefs in {source.name}"))
        target.drop_derived()
        rebuild_from_log(target, self._ladders)
        after = self._digests(target, f"beliefs in {target.name}")
        if how := difference(before, after):
            raise Failed(f"{how}: {source.blame}: {self._outcome}")
        # For `erase` on Kafka, the right to write the new events is enough: then they cannot be
        # read.
        readable = self._pseudonym is None or target.keeps_offsets
        copied = _newest(target) if readable else self._newest
        for (ladder, player), _ in sorted(self._newest.items() ^ copied.items()):
            raise Failed(
                f"{target.name}: the newest event of ladder {shown(ladder)!r}, player "
                f"{shown(player)!r} is not that in {source.name}: does something else write to it?"
            )
        if list(target.ends()) != list(self.ends):
            raise Failed(f"something else writes to {target.name}: stop it")
        target.check_idle()
        source.check_unchanged(self.ends)
        return len(after)

    def _digests(self, place: Place, label: str) -> Digests:
        return digests_of(track_batches(place.beliefs(), label), self._corrected)

    def _renamed(self, found: Mapping[Player, T]) -> dict[Player, T]:
        """The same mapping, with the new name of the player."""
        pseudonym = self._pseudonym
        if pseudonym is None:
            return dict(found)
        old, new = pseudonym.player, pseudonym.name
        return {(of, new if who == old else who): each for (of, who), each in found.items()}


def _newest(place: Place) -> Mapping[Player, LastPublished]:
    """What the newest event of each player says: the one with the greatest `offset`, in whatever
    partition it is."""
    return last_published(
        rating_changed_from_json(each.value) for each in place.events() if each.value
    )


def mentions_in(place: Place, ladders: Ladders, pseudonym: Pseudonym | None) -> Mentions:
    """Validate the log of a place, and count the records that name a player."""

    def count(verdicts: Verdicts | None) -> Mentions:
        mentions, records = Mentions(verdicts), _flagged(place, ladders, verdicts, "rounds")
        if pseudonym is None:
            for _ in records:  # raises MissingVerdicts if there must be verdicts
                pass
        else:
            mentions.read(records, pseudonym)
        return mentions

    window = place.settings.duplicate_window
    return with_verdicts(count, place.all_rounds, ladders, window, place.partitions)


def _flagged(place: Place, ladders: Ladders, verdicts: Verdicts | None, label: str) -> Flagged:
    """All rounds of a place (`rewriting.flagged`), with a progress bar."""
    rounds = track(place.all_rounds(), label, sum(place.ends()))
    return flagged(rounds, ladders, place.settings.duplicate_window, place.partitions, verdicts)


def check_kernel(begun_by: int) -> None:
    """Raise Failed if the ratings go back to another kernel version than this release's: a rebuild
    would compute other ratings. `begun_by`: the version that they go back to."""
    if begun_by != KERNEL_VERSION:
        raise Failed(
            f"ratings go back to kernel version {begun_by}, this release has {KERNEL_VERSION}: run "
            "`stream-rater rebuild --replace` first, which computes all of them again"
        )


def check_none_deferred(corrections: Mapping[str, Sequence[RecordedCorrection]]) -> None:
    """Raise Failed if one of these corrections is deferred until corrections-applied."""
    for ladder, recorded in corrections.items():
        if waiting := LadderEdits(recorded).waiting(AFTER_ALL):
            text = counted(len(waiting), "correction")
            raise Failed(
                f"ladder {ladder!r}, offset {waiting[0].offset}: {text} waiting for "
                "corrections-applied: start workers, send `stream-rater correct apply`, stop them "
                "again, and run it again"
            )
