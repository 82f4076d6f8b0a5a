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
from stream_rater.pipeline.corrections.correction_ports import Noted, NotedCorrection
from stream_rater.pipeline.corrections.edits_in_force import note_of
from stream_rater.rating import record as belief_record
from stream_rater.rating import stages
from stream_rater.rating.model import Beliefs, newcomers
from stream_rater.replay.corrected import judged
from stream_rater.replay.edited_log import Verdicts
from stream_rater.rounds.corrections import decode
from stream_rater.rounds.decoder import kind_of
from stream_rater.rounds.validation import Invalid


class LastPublished(NamedTuple):
    """The mu and sigma in a player's last published event, and the event's source offset."""

    offset: int
    mu: float
    sigma: float


class Edition(NamedTuple):
    """A replay of the log with some of its corrections, for some of its players."""

    verdicts: Verdicts
    """The verdicts on the corrections that count (`corrected.judged`)."""
    limits: Mapping[str, int]
    """By ladder, the offset of the first applied correction that this edition leaves out. The
    edition is for the players whose pending parts are of this correction."""


def editions(
    again: Callable[[], Iterable[Record]], ladders: Ladders, window: int, partitions: int,
    cutoff: Cutoff,
) -> list[Edition]:  # fmt: skip
    """The editions of the log. The first one has all applied corrections, and is for all players
    without pending correction parts. `again` yields the whole log at each call."""
    waiting: dict[str, set[int]] = {}
    for (ladder, _), offset in cutoff.awaiting().items():
        waiting.setdefault(ladder, set()).add(offset)
    most = max(map(len, waiting.values()), default=0)
    each_limits: list[dict[str, int]] = [{}] + [
        {ladder: sorted(some)[i] for ladder, some in waiting.items() if i < len(some)}
        for i in range(most)
    ]
    found = []
    for limits in each_limits:

        def done(limits: Mapping[str, int] = limits) -> Iterator[Record]:
            for record in again():
                if not kind_of(record) or _is_done(record, ladders, partitions, cutoff, limits):
                    yield record

        found.append(Edition(judged(done, ladders, window, partitions), limits))
    return found


def _is_done(
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


def to_restate(worked_in: Verdicts, noted: Noted, judge_all: Callable[[], Verdicts]) -> Noted:
    """By ladder, its corrections as a replay of the log finds them, for each ladder whose ladder
    events say otherwise. These events may belong to another log, or were lost with their topic.

    `worked_in`: the verdicts on the applied corrections. `noted`: the corrections in the ladder
    events. `judge_all`: gives the verdicts on all corrections in the log. The events of a
    correction in progress stay, if the log agrees.
    """
    found = _notes_by(worked_in)
    known = {(ladder, each.place) for ladder, some in found.items() for each in some}
    others = {(ladder, each.place) for ladder, some in noted.items() for each in some} - known
    if others:
        known |= others
        found = {
            ladder: [each for each in some if (ladder, each.place) in known]
            for ladder, some in _notes_by(judge_all()).items()
        }
    every = {ladder: found.get(ladder, []) for ladder in dict.fromkeys((*found, *noted))}
    return {each: some for each, some in every.items() if some != list(noted.get(each, ()))}


def _notes_by(verdicts: Verdicts) -> dict[str, list[NotedCorrection]]:
    """By ladder, the ladder events that workers write for these verdicts."""
    return {each: [note_of(*one) for one in some] for each, some in verdicts.worked_in.items()}


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


class Marks:
    """Restores in rebuilt beliefs the values that corrections have left in the store. It has
    nothing to do with the marks that a rebuild writes to the shards."""

    def __init__(
        self, published: Mapping[Player, LastPublished], cutoff: Cutoff, edition: Edition,
        ladders: Ladders,
    ) -> None:  # fmt: skip
        """`published`: the last published mu and sigma of players of ladders with corrections."""
        self._awaiting = cutoff.awaiting()
        self._limits = edition.limits
        self._published = {player: each for player, each in published.items() if self._has(player)}
        sent = cutoff.corrected.items()
        self._sent = {player: each for player, each in sent if self._has(player)}
        self._cutoff = cutoff
        self._corrected = edition.verdicts.edits.keys()
        self._ladders = ladders

    def _has(self, player: Player) -> bool:
        """Whether the edition is for this player."""
        awaited = self._awaiting.get(player)
        return not self._limits if awaited is None else awaited == self._limits.get(player[0])

    def put(self, beliefs: BeliefColumn) -> BeliefColumn:
        """The replayed beliefs of this edition's players, with the values that corrections left.

        The replay includes all applied corrections. A player is left out if nothing was published
        of the player and all the player's parts are pending: the store has no such belief yet.
        """
        players = PlayerColumn.of([player for player, _ in beliefs])
        waits = self._cutoff.only_waits(players).tolist()
        both = zip(beliefs, waits, strict=True)
        own = [(player, data, wait) for (player, data), wait in both if self._has(player)]
        return BeliefColumn.of(
            [
                (player, self._marked(player, data))
                for player, data, wait in own
                if not wait or player[0] not in self._corrected or player in self._published
            ]
        )

    def rest(self) -> Iterator[BeliefColumn]:
        """Yield the beliefs of players who have no round left."""
        found = []
        for player in [*dict.fromkeys([*self._published, *self._sent])]:
            data = self._newcomer(player)
            marked = self._marked(player, data)
            if marked != data:
                found.append((player, marked))
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

    def _marked(self, player: Player, data: bytes) -> bytes:
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
