"""How a rebuild handles corrections.

- An estimator applies a correction: it sends the correction's parts to the updaters. The rebuild
  replays the log as the applied corrections edit it. Corrections that are not applied, or only in
  part, are left to the workers, as unfinished rounds are.
- Where the parts of an applied correction are pending, the store does not have the corrected
  beliefs yet: their players are replayed once more, without this correction and later ones.
- A correction in progress may have reached some players already. The parts of these players hold
  their whole records.
- The rebuild writes the ladder events of corrections again, as its replay finds them: so they
  belong to this log, even if their topic was lost or comes from an older copy.
- A correction may change a rating too little to be published at once. It is published with the
  player's next event. The topic `rating-changed` shows what was last published.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import RatingChanged
from stream_rater.contract.record import Player, Record
from stream_rater.operations.cutoff import Cutoff
from stream_rater.pipeline.corrections.edits_in_force import recorded_correction
from stream_rater.pipeline.ports import CorrectionsByLadder, RecordedCorrection
from stream_rater.rating import record as belief_record
from stream_rater.rating import stages
from stream_rater.rating.model import Beliefs, Table, newcomers
from stream_rater.replay.edited_log import Verdicts
from stream_rater.replay.ledger import verdicts_of_log
from stream_rater.rounds import validation
from stream_rater.rounds.correction_records import decode_correction, is_correction


class LastPublished(NamedTuple):
    """The mu, sigma and rounds in a player's last published event, and its source offset."""

    offset: int
    mu: float
    sigma: float
    rounds: int = 0


class Edition(NamedTuple):
    """A replay of the log with some of its corrections, for some of its players."""

    verdicts: Verdicts  # The verdicts on the corrections that count (`ledger.verdicts_of_log`).
    limits: Mapping[str, int]
    """By ladder, the offset of the first applied correction that this edition leaves out. The
    edition is for the players whose first pending correction part is of this correction."""


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
                given = ladders, partitions, cutoff, limits
                if not is_correction(record) or _is_applied(record, *given):
                    yield record

        found.append(Edition(verdicts_of_log(applied_records, ladders, window, partitions), limits))
    return found


def _is_applied(
    record: Record, ladders: Ladders, partitions: int, cutoff: Cutoff, limits: Mapping[str, int]
) -> bool:
    """Whether the correction in a record is applied, and within the limits: its offset is
    committed, or a later part of its ladder was sent. An invalid correction counts as applied."""
    try:
        ladder = decode_correction(record, ladders, partitions).ladder
    except validation.Invalid:
        return True
    sent = max(cutoff.sent(record.partition), cutoff.furthest(ladder))
    return record.offset < min(sent, limits.get(ladder, sent))


def to_restate(
    applied: Verdicts, recorded: CorrectionsByLadder, validate_all: Callable[[], Verdicts]
) -> CorrectionsByLadder:
    """By ladder, its corrections as a replay of the log finds them, for each ladder whose ladder
    events (`recorded`) say otherwise: these may belong to another log, or were lost with their
    topic. `applied`: the verdicts on the applied corrections. `validate_all` returns those on all
    corrections in the log. The events of a correction in progress stay, if the log agrees."""
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


def corrected_ladders(verdicts: Verdicts, cutoff: Cutoff) -> set[str]:
    """The ladders in whose beliefs corrections may have left values: those with corrections that
    are applied, or in progress."""
    return {*verdicts.edits, *(ladder for ladder, _ in cutoff.corrected)}


def last_published(
    changes: Iterable[RatingChanged], wanted: Callable[[str], bool] = lambda _: True
) -> dict[Player, LastPublished]:
    """What was last published of each player of the wanted ladders, by all events in any order."""
    found: dict[Player, LastPublished] = {}
    for each in changes:
        player = each.ladder, each.player
        if wanted(each.ladder) and (player not in found or found[player].offset < each.offset):
            found[player] = LastPublished(each.offset, each.mu, each.sigma, each.rounds)
    return found


class CorrectionTraces:
    """Restores in rebuilt beliefs the values that corrections have left in the store."""

    def __init__(
        self, published: Mapping[Player, LastPublished], cutoff: Cutoff, edition: Edition,
        ladders: Ladders,
    ) -> None:  # fmt: skip
        """`published`: the last published mu and sigma of players of ladders with corrections."""
        self._cutoff = cutoff
        self._pending = cutoff.pending_corrections()
        self._limits = edition.limits
        self._published = {
            player: each for player, each in published.items() if self._covers(player)
        }
        sent = cutoff.corrected.items()
        self._sent = {player: each for player, each in sent if self._covers(player)}
        self._corrected = edition.verdicts.applied.keys()
        """The ladders with accepted corrections. On the others, nothing was left in beliefs."""
        self._ladders = ladders

    def _covers(self, player: Player) -> bool:
        """Whether the edition is for this player."""
        pending = self._pending.get(player)
        return not self._limits if pending is None else pending == self._limits.get(player[0])

    def restored(self, beliefs: BeliefColumn) -> BeliefColumn:
        """The replayed beliefs of this edition's players, with the values that corrections left. A
        player is left out if nothing was published of the player and all the player's parts are
        pending: the store has no such belief yet."""
        pending = self._cutoff.all_pending(beliefs.players)
        unknown = (self._corrected_among(beliefs.players) & pending).tolist()
        both = zip(beliefs.players, unknown, strict=True)
        stored = [
            self._covers(player) and (not is_unknown or player in self._published)
            for player, is_unknown in both
        ]
        return self._with_traces(beliefs.take(np.flatnonzero(stored)))

    def without_rounds(self) -> Iterator[BeliefColumn]:
        """Yield the beliefs of players who have no round left."""
        left = dict.fromkeys([*self._published, *self._sent])
        newcomer = {ladder: self._newcomer(ladder) for ladder in {of for of, _ in left}}
        before = BeliefColumn.of([(player, newcomer[player[0]]) for player in left])
        after = self._with_traces(before)
        both = zip(before.records.strings(), after.records.strings(), strict=True)
        changed = np.flatnonzero([data != restored for data, restored in both])
        if len(changed):
            yield after.take(changed)

    def _corrected_among(self, players: PlayerColumn) -> Flags:
        """(P,) whether the ladder of each player has accepted corrections."""
        ladders = [each in self._corrected for each in players.ladders.texts]
        found: Flags = np.array(ladders, np.bool_)[players.ladder]
        return found

    def _initial(self, ladder: str) -> LastPublished:
        terms = self._ladders.find(ladder)
        assert terms is not None, "a correction of it was accepted"
        rule = stages.rule_of(terms.rating)
        return LastPublished(-1, rule.initial_mu, rule.initial_sigma)

    def _newcomer(self, ladder: str) -> bytes:
        _, mu, sigma, _ = self._initial(ladder)
        return belief_record.encode(newcomers(1, 1, mu, sigma, coded=True))[0]

    def _with_traces(self, beliefs: BeliefColumn) -> BeliefColumn:
        """The same beliefs with the values that corrections left in them."""
        players, corrected = list(beliefs.players), self._corrected_among(beliefs.players)
        sent = np.array([each in self._sent for each in players], np.bool_)
        rows = np.flatnonzero(corrected | sent)
        if not len(rows):
            return beliefs
        own, records = [players[i] for i in rows.tolist()], beliefs.records.strings()
        found = self._as_sent(own, [records[i] for i in rows.tolist()])
        header, last, chosen = found.header, self._last_published(own), beliefs.players.take(rows)
        published = np.where(self._cutoff.counts(chosen, last["offset"]), last["offset"], -1)
        for offset in (self._cutoff.applied_offsets(chosen), published):
            # a removed round must not be applied again
            header["last"] = np.maximum(header["last"], offset)
        differs = (last["mu"] != header["mu"]) | (last["sigma"] != header["sigma"])
        differs &= not self._cutoff.closes
        header["previous_mu"][differs] = last["mu"][differs]
        header["previous_sigma"][differs] = last["sigma"][differs]
        header["untold"][differs] = 1
        for i, data in zip(rows.tolist(), belief_record.encode(found), strict=True):
            records[i] = data
        return BeliefColumn(beliefs.players, StringColumn.of_bytes(records))

    def _as_sent(self, players: Sequence[Player], records: list[bytes]) -> Beliefs:
        """The beliefs in these players' records; those in correction parts, if these are later."""
        last = belief_record.headers_of(records)["last"]
        sent = [(i, self._sent.pop(each)) for i, each in enumerate(players) if each in self._sent]
        for i, (offset, data) in sent:
            if offset > last[i]:
                last[i], records[i] = offset, data
        found = belief_record.decode(records, 0, 0.0, 1.0)
        found.header["last"] = last
        return found

    def _last_published(self, players: Sequence[Player]) -> Table:
        """(P,) what was last published of each player; the initial values if nothing was."""
        initial = {ladder: self._initial(ladder) for ladder in {of for of, _ in players}}
        found = [self._published.pop(each, initial[each[0]]) for each in players]
        return np.array(found, PUBLISHED)


PUBLISHED = np.dtype([("offset", "<i8"), ("mu", "<f8"), ("sigma", "<f8"), ("rounds", "<i8")])
