"""How a rebuild handles corrections.

- An estimator applies a correction: it sends the correction's parts to the updaters. The rebuild
  replays the log as the applied corrections edit it. Corrections that are not applied, or only in
  part, are left to the workers, as unfinished rounds are.
- The parts of an applied correction may still be pending. Then the store does not have the
  corrected beliefs yet. So the players in these parts are replayed once more, without this
  correction and later ones.
- A correction in progress may have reached some players already. The parts of these players hold
  their whole records.
- The rebuild writes the ladder events of corrections again, as its replay finds them. So these
  events belong to the log that was replayed, even if their topic was lost or comes from an older
  copy.
- A correction may change a rating too little to be published at once. It is published with the
  player's next event. The topic `rating-changed` shows what was last published.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import RatingChanged
from stream_rater.contract.record import Player, Record
from stream_rater.operations.cutoff import Cutoff
from stream_rater.pipeline.corrections.correction_ports import (
    CorrectionsByLadder,
    RecordedCorrection,
)
from stream_rater.pipeline.corrections.edits_in_force import recorded_correction
from stream_rater.rating import record as belief_record
from stream_rater.rating import stages
from stream_rater.rating.model import Beliefs, newcomers
from stream_rater.replay.corrected import verdicts_of_log
from stream_rater.replay.edited_log import Verdicts
from stream_rater.rounds.correction_records import decode
from stream_rater.rounds.decoder import kind_of
from stream_rater.rounds.seed_records import is_seed
from stream_rater.rounds.validation import Invalid


class LastPublished(NamedTuple):
    """The mu and sigma in a player's last published event, and the event's source offset."""

    offset: int
    mu: float
    sigma: float


class Edition(NamedTuple):
    """A replay of the log with some of its corrections, for some of its players."""

    verdicts: Verdicts
    """The verdicts on the corrections that count (`corrected.verdicts_of_log`)."""
    limits: Mapping[str, int]
    """By ladder, the offset of the first applied correction that this edition leaves out. The
    edition is for the players whose pending parts are of this correction."""


def editions(
    read_log: Callable[[], Iterable[Record]], ladders: Ladders, window: int, partitions: int,
    cutoff: Cutoff,
) -> list[Edition]:  # fmt: skip
    """The editions of the log. The first one has all applied corrections, and is for all players
    without pending correction parts. `read_log` yields the whole log at each call."""
    pending: dict[str, set[int]] = {}
    for (ladder, _), offset in cutoff.pending_corrections().items():
        pending.setdefault(ladder, set()).add(offset)
    most = max(map(len, pending.values()), default=0)
    each_limits: list[dict[str, int]] = [{}] + [
        {ladder: sorted(group)[i] for ladder, group in pending.items() if i < len(group)}
        for i in range(most)
    ]
    found = []
    for limits in each_limits:

        def applied_records(limits: Mapping[str, int] = limits) -> Iterator[Record]:
            for record in read_log():
                no_correction = not kind_of(record) or is_seed(record)
                if no_correction or _is_applied(record, ladders, partitions, cutoff, limits):
                    yield record

        found.append(Edition(verdicts_of_log(applied_records, ladders, window, partitions), limits))
    return found


def _is_applied(
    record: Record, ladders: Ladders, partitions: int, cutoff: Cutoff, limits: Mapping[str, int]
) -> bool:
    """Whether the correction in a record is applied and within the limits. A correction is applied
    if its offset is committed, or if a later part of its ladder was sent. An invalid correction
    counts as applied."""
    try:
        ladder = decode(record, ladders, partitions).ladder
    except Invalid:
        return True
    sent = max(cutoff.sent(record.partition), cutoff.furthest(ladder))
    return record.offset < min(sent, limits.get(ladder, sent))


def to_restate(
    applied: Verdicts, recorded: CorrectionsByLadder, validate_all: Callable[[], Verdicts]
) -> CorrectionsByLadder:
    """By ladder, its corrections as a replay of the log finds them, for each ladder whose ladder
    events say otherwise. These events may belong to another log, or were lost with their topic.

    `applied`: the verdicts on the applied corrections. `noted`: the corrections in the ladder
    events. `validate_all`: gives the verdicts on all corrections in the log. The events of a
    correction in progress stay, if the log agrees.
    """
    found = _expected_events(applied)
    known = {(ladder, each.place) for ladder, group in found.items() for each in group}
    others = {(ladder, each.place) for ladder, group in recorded.items() for each in group} - known
    if others:
        known |= others
        found = {
            ladder: [each for each in group if (ladder, each.place) in known]
            for ladder, group in _expected_events(validate_all()).items()
        }
    every = {ladder: found.get(ladder, []) for ladder in dict.fromkeys((*found, *recorded))}
    return {each: group for each, group in every.items() if group != list(recorded.get(each, ()))}


def _expected_events(verdicts: Verdicts) -> dict[str, list[RecordedCorrection]]:
    """By ladder, the ladder events that workers write for these verdicts."""
    return {
        each: [recorded_correction(*one) for one in group]
        for each, group in verdicts.applied.items()
    }


def last_published(
    changes: Iterable[RatingChanged], ladders: Iterable[str]
) -> dict[Player, LastPublished]:
    """The last published mu and sigma of each player of these ladders. `changes`: their events, in
    any order."""
    found: dict[Player, LastPublished] = {}
    wanted = set(ladders)
    for each in changes:
        player = each.ladder, each.player
        if each.ladder in wanted and (player not in found or found[player].offset < each.offset):
            found[player] = LastPublished(each.offset, each.mu, each.sigma)
    return found


class CorrectionTraces:
    """Restores in rebuilt beliefs the values that corrections have left in the store. It has
    nothing to do with the marks that a rebuild writes to the shards."""

    def __init__(
        self, published: Mapping[Player, LastPublished], cutoff: Cutoff, edition: Edition,
        ladders: Ladders,
    ) -> None:  # fmt: skip
        """`published`: the last published mu and sigma of players of ladders with corrections."""
        self._pending = cutoff.pending_corrections()
        self._limits = edition.limits
        self._published = {
            player: each for player, each in published.items() if self._covers(player)
        }
        sent = cutoff.corrected.items()
        self._sent = {player: each for player, each in sent if self._covers(player)}
        self._cutoff = cutoff
        self._corrected = edition.verdicts.applied.keys()
        """The ladders with accepted corrections. On the others, nothing was left in beliefs."""
        self._ladders = ladders

    def _covers(self, player: Player) -> bool:
        """Whether the edition is for this player."""
        pending = self._pending.get(player)
        return not self._limits if pending is None else pending == self._limits.get(player[0])

    def restored(self, beliefs: BeliefColumn) -> BeliefColumn:
        """The replayed beliefs of this edition's players, with the values that corrections left.

        The replay includes all applied corrections. A player is left out if nothing was published
        of the player and all the player's parts are pending: the store has no such belief yet.
        """
        players = PlayerColumn.of([player for player, _ in beliefs])
        pending = self._cutoff.all_pending(players).tolist()
        both = zip(beliefs, pending, strict=True)
        covered = [
            (player, data, is_pending)
            for (player, data), is_pending in both
            if self._covers(player)
        ]
        return BeliefColumn.of(
            [
                (player, self._restored(player, data))
                for player, data, is_pending in covered
                if not is_pending or player[0] not in self._corrected or player in self._published
            ]
        )

    def without_rounds(self) -> Iterator[BeliefColumn]:
        """Yield the beliefs of players who have no round left."""
        found = []
        for player in [*dict.fromkeys([*self._published, *self._sent])]:
            data = self._newcomer(player)
            restored = self._restored(player, data)
            if restored != data:
                found.append((player, restored))
        if found:
            yield BeliefColumn.of(found)

    def _initial(self, player: Player) -> LastPublished:
        terms = self._ladders.find(player[0])
        assert terms is not None, "it has corrections"
        rule = stages.rule_of(terms.rating)
        return LastPublished(-1, rule.initial_mu, rule.initial_sigma)

    def _newcomer(self, player: Player) -> bytes:
        _, mu, sigma = self._initial(player)
        return belief_record.encode(newcomers(1, 1, mu, sigma, coded=True))[0]

    def _restored(self, player: Player, data: bytes) -> bytes:
        if player[0] not in self._corrected and player not in self._sent:
            return data
        applied = int(self._cutoff.applied_offsets(PlayerColumn.of([player]))[0])
        last, sent = self._published.pop(player, None), self._sent.pop(player, None)
        if last is not None:
            applied = max(applied, last.offset)
        beliefs = belief_record.decode([data], 0, 0.0, 1.0)
        if sent is not None and sent[0] > int(beliefs.header["last"][0]):
            beliefs = belief_record.decode([sent[1]], 0, 0.0, 1.0)
            beliefs.header["last"] = sent[0]
        head = beliefs.header[0]
        head["last"] = max(int(head["last"]), applied)  # a removed round must not be applied again
        if last is None and player[0] in self._corrected:
            last = self._initial(player)
        if last is None or (last.mu, last.sigma) == (float(head["mu"]), float(head["sigma"])):
            return _encoded(beliefs)
        head["previous_mu"], head["previous_sigma"], head["untold"] = last.mu, last.sigma, 1
        return _encoded(beliefs)


def _encoded(beliefs: Beliefs) -> bytes:
    return belief_record.encode(beliefs)[0]
