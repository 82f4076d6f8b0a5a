"""The oracle: the sequential replay of the log, with its beliefs, events and rejections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from stream_rater.adapters.memory import Log, Store
from stream_rater.columns.sharding import partition_of, shards_of
from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import Correction
from stream_rater.contract.events import LOG_LOST, RatingChanged, joined, rating_changed_from_json
from stream_rater.contract.record import Player, Record
from stream_rater.operations.lost_rounds import FILLER
from stream_rater.pipeline.ports import REBUILT, Position, Rejection
from stream_rater.rating import record as belief_record
from stream_rater.replay.edited_log import RecordValidator
from stream_rater.replay.ledger import Ledger
from stream_rater.rounds.correction_records import decode_correction, is_correction, is_seed
from stream_rater.rounds.validation import Invalid
from stream_rater.serve.door.validating import ladder_in

from .truth import EventValues, LadderTruth, Rated, WrittenBy, values_of


@dataclass
class Expected:
    ladders: dict[str, LadderTruth] = field(default_factory=dict)
    rejections: list[tuple[int, int, str]] = field(default_factory=list)  # offsets and codes

    @property
    def changes(self) -> dict[Player, list[EventValues]]:
        return {
            (ladder, player): values
            for ladder, truth in self.ladders.items()
            for player, values in truth.changes.items()
        }

    def beliefs(self, written_by: WrittenBy) -> dict[Player, bytes]:
        """The records that the store must hold (`LadderTruth.beliefs`)."""
        each = [truth.beliefs(written_by) for truth in self.ladders.values()]
        return {player: data for some in each for player, data in some.items()}


def replay(log: Log, ladders: Ladders, window: int) -> Expected:
    expected = Expected()
    for partition, records in enumerate(log.rounds):
        validator = RecordValidator(ladders, window, len(log.rounds))
        corrections = _well_formed(records, ladders, len(log.rounds), expected)
        read = validator.round_decoder.read
        for name, ladder in ladders.ladders.items():
            if partition_of(name, len(log.rounds)) == partition:
                own = [each for each in corrections.values() if each.ladder == name]
                expected.ladders[name] = LadderTruth(name, ladder, Ledger(own, read))
        for record in records:
            if record.offset in corrections:
                correction = corrections[record.offset]
                expected.ladders[correction.ladder].correct(record, correction)
            elif is_seed(record):
                _seed(record, validator, expected)
            elif not is_correction(record):
                _rate(record, validator, expected)
    for truth in expected.ladders.values():
        expected.rejections += truth.rejections
    return expected


def _well_formed(
    records: Sequence[Record], ladders: Ladders, partitions: int, expected: Expected
) -> dict[int, Correction]:
    """By offset, the well-formed corrections among these records. Others are rejected."""
    found = {}
    for record in filter(is_correction, records):
        try:
            found[record.offset] = decode_correction(record, ladders, partitions)
        except Invalid as invalid:
            expected.rejections.append((record.partition, record.offset, invalid.code))
    return found


def _rate(record: Record, validator: RecordValidator, expected: Expected) -> None:
    rounds, (rejection,) = validator.decode([record])
    if rejection is not None:
        expected.rejections.append((record.partition, record.offset, rejection.code))
        return
    (standings,) = rounds
    rating = validator.round_decoder.ratings[int(rounds.config_index[0])]
    expected.ladders[standings.ladder].rate(Rated(standings, rating, record))


def _seed(record: Record, validator: RecordValidator, expected: Expected) -> None:
    try:
        seed = validator.seed(record)
    except Invalid as invalid:
        expected.rejections.append((record.partition, record.offset, invalid.code))
    else:
        expected.ladders[seed.ladder].seed(seed)


def _is_of_another_file(log: Log, rejected: Rejection, code: str | None) -> bool:
    """Whether the code of an older file is right, too: the ladder is not in its partition."""
    if code == "wrong-partition":
        return True
    partition, offset = rejected.record.partition, rejected.record.offset
    (record,) = log.rounds[partition][offset : offset + 1] or (None,)  # None: it is lost
    name = ladder_in(record.value or b"") if record is not None else ""
    elsewhere = bool(name) and partition_of(name, len(log.rounds)) != partition
    return elsewhere and code is not None and rejected.code == "unknown-ladder"


def violations(
    log: Log, store: Store, ladders: Ladders, window: int, once: int, *, rebuilt: bool,
    torn: bool = False, traces: bool = True,
) -> list[str]:  # fmt: skip
    """The differences of log and store from what is expected. `once`: the former number of shards.
    `rebuilt`: beliefs may be as a rebuild leaves them. `torn`: the log lost records, whose events
    stay, so only newest events are compared. `traces`: compare what corrections left in beliefs: a
    rebuild after a loss publishes all of it."""
    expected = replay(log, ladders, window)
    shards = len(log.parts)
    found = _beliefs(store, expected, shards, rebuilt=rebuilt, torn=torn, traces=traces)
    changes = _changes(log, once)
    if torn:
        found += _newest(store, changes)
    for player in sorted(changes.keys() | expected.changes.keys()) if not torn else ():
        published, due = changes.get(player, []), expected.changes.get(player, [])
        if published != due:
            found.append(f"events of {player}: {_rounds(published)}, not {_rounds(due)}")
    codes = {(p, o): code for p, o, code in expected.rejections}
    rejections = sorted(
        (p, o, codes.get((p, o), "") if _is_of_another_file(log, r, codes.get((p, o))) else r.code)
        for r in log.rejected
        for p, o in [(r.record.partition, r.record.offset)]
    )
    refused = sorted(expected.rejections)
    if torn:  # rejections of lost records stay, and a rebuild rejects nothing
        closed = [_closed(records) for records in log.rounds]
        rejections, refused = (
            [(p, o, code) for p, o, code in some if o >= closed[p] and log.rounds[p][o].value]
            for some in (rejections, refused)
        )
    if rejections != refused:
        found.append(f"rejections: {rejections}, not {refused}")
    return found


def _closed(records: Sequence[Record]) -> int:
    """The offset after the last record that a rebuild has appended to a log that lost some."""
    appended = (each.offset for each in records if (each.value or b"").startswith(FILLER))
    return max(appended, default=-1) + 1


def _newest(store: Store, changes: Mapping[Player, Sequence[EventValues]]) -> list[str]:
    """Where newest events differ from the store, or do not join after a rebuild."""
    found = []
    stored = {who: data for beliefs in store.beliefs.values() for who, data in beliefs.items()}
    for player in sorted(changes.keys() | stored.keys() - {REBUILT}):
        events = sorted(changes.get(player, ()), key=lambda each: each.offset)
        if not events and player in stored and _waits(stored[player]):
            continue
        if not events:
            found.append(f"events of {player}: none")
            continue
        last, rounds, waits = events[-1], 0, False
        if player in stored:
            row = belief_record.decode([stored[player]], 0, 0.0, 1.0).header[0]
            rounds, waits = int(row["rounds"]), _waits(stored[player])
            if not waits and (last.mu, last.sigma) != (float(row["mu"]), float(row["sigma"])):
                found.append(f"newest event of {player}: {_rounds([last])}, not {row['mu']:.6f}")
        if not waits and last.rounds != rounds:
            found.append(f"newest event of {player}: of {last.rounds} rounds, not {rounds}")
        first = next((i for i, each in enumerate(events) if each.cause == LOG_LOST), len(events))
        for before, after in pairwise(events[max(0, first - 1) :]):
            goes_on = (before.mu, before.sigma) == (after.previous_mu, after.previous_sigma)
            goes_on |= before.rounds == 0  # a player who begins again has the initial values there
            if not goes_on or before.offset == after.offset:
                found.append(f"events of {player} do not go on: {_rounds([before, after])}")
    return found


def _waits(data: bytes) -> bool:
    """Whether a belief was not published yet, or is of no round."""
    (row,) = belief_record.headers_of([data])
    return bool(row["untold"]) or not row["rounds"]


def _beliefs(
    store: Store, expected: Expected, shards: int, *, rebuilt: bool, torn: bool, traces: bool
) -> list[str]:
    stored = {
        player: (shard, data)
        for shard, beliefs in store.beliefs.items()
        for player, data in beliefs.items()
        if player != REBUILT
    }
    ways = [
        {
            player: (int(shards_of([player[1]], shards)[0]), data)
            for player, data in expected.beliefs(written_by).items()
        }
        for written_by in (WrittenBy if rebuilt else (WrittenBy.APPLIED,))
        if torn or written_by is not WrittenBy.CLOSED
    ]
    wrong = [
        p
        for p in {player for each in (stored, *ways) for player in each}
        if stored.get(p) not in [due.get(p) for due in ways]
        and (traces or not _differ_in_traces(stored.get(p), ways[0].get(p)))
        and not (rebuilt and _has_later_row(stored.get(p), ways, expected, p))
        and not (rebuilt and _has_no_round(stored.get(p)) and _has_no_round(ways[0].get(p)))
    ]
    return [f"beliefs differ: {sorted(wrong)}"] if wrong else []


def _differ_in_traces(one: tuple[int, bytes] | None, other: tuple[int, bytes] | None) -> bool:
    """Whether two beliefs differ by what a correction left in them alone."""
    if one is None or other is None:
        return _has_no_round(one) and _has_no_round(other)
    found = belief_record.decode([one[1], other[1]], 0, 0.0, 1.0)
    for name in ("last", "untold", "previous_mu", "previous_sigma"):
        found.header[name] = 0
    a, b = belief_record.encode(found)
    return one[0] == other[0] and a == b


LAST_FROM, LAST_TO = 6, 11  # the bytes of a record that have the last offset


def _has_later_row(
    stored: tuple[int, bytes] | None, ways: Sequence[Mapping[Player, tuple[int, bytes]]],
    expected: Expected, player: Player,
) -> bool:  # fmt: skip
    """Whether a belief differs from a due one only by its last offset, which is that of a later row
    without effect. A rebuild stores such offsets, also in beliefs that a correction wrote."""
    due = [way[player] for way in ways if player in way]
    rows = expected.ladders[player[0]].seed_rows.get(player[1], ())
    if stored is None or _last(stored) not in rows:
        return False
    return any(
        _without_last(each) == _without_last(stored) and _last(each) < _last(stored) for each in due
    )


def _last(record: tuple[int, bytes]) -> int:
    header = belief_record.read_headers(record[1][: belief_record.HEADER_SIZE])
    return int(header["last"][0])


def _without_last(record: tuple[int, bytes]) -> tuple[int, bytes, bytes]:
    """A belief's shard, and its bytes before and after the last offset."""
    shard, data = record
    return shard, data[:LAST_FROM], data[LAST_TO:]


def _has_no_round(stored: tuple[int, bytes] | None) -> bool:
    """Whether a belief has no round. Then only its last published values matter after a rebuild."""
    return stored is None or not belief_record.decode([stored[1]], 0, 0.0, 1.0).header["rounds"][0]


def _changes(log: Log, once: int) -> dict[Player, list[EventValues]]:
    """The events of each player, in order: first those from the player's former shard."""
    changes: dict[Player, list[EventValues]] = {}
    moved: dict[Player, list[EventValues]] = {}
    now = len(log.parts)
    for shard, events in enumerate(log.changed):
        for sent in events:
            event: RatingChanged = rating_changed_from_json(sent.value)
            assert sent.key.decode() == joined(event.ladder, event.player)
            homes = [shards_of([event.player], among)[0] for among in (once, now)]
            assert shard in homes
            found = changes if shard == homes[0] else moved
            values = values_of(event, sent.trace.headers() if sent.trace else ())
            found.setdefault((event.ladder, event.player), []).append(values)
    for player, later in moved.items():
        changes.setdefault(player, []).extend(later)
    return changes


def _rounds(values: Sequence[EventValues]) -> list[str]:
    return [
        f"{each.cause or each.round_id} {each.previous_mu:.6f} {each.mu:.6f}" for each in values
    ]


def is_done(log: Log, store: Store) -> bool:
    return (
        all(log.estimators.committed.get(p, 0) == len(r) for p, r in enumerate(log.rounds))
        and all(log.updaters.committed.get(s, 0) == len(p) for s, p in enumerate(log.parts))
        and all(_applied(store, s) == len(p) for s, p in enumerate(log.parts))
    )


def where(log: Log, store: Store) -> str:
    """How far the two groups and the store have come."""
    applied = [_applied(store, shard) for shard in range(len(log.parts))]
    return (
        f"source {log.estimators.committed} of {list(map(len, log.rounds))}, "
        f"parts {log.updaters.committed} of {list(map(len, log.parts))}, applied {applied}"
    )


def _applied(store: Store, shard: int) -> int:
    return store.positions.get(shard, Position()).applied
