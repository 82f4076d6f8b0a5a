"""`stream-rater inspect`: describes a player's belief, a ladder's corrections, or all topics."""

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import numpy as np

from stream_rater import places
from stream_rater.columns import player_column, sharding
from stream_rater.columns.arrays import Floats
from stream_rater.config import errors
from stream_rater.config.settings import Settings
from stream_rater.contract import events
from stream_rater.contract.corrections import Correction
from stream_rater.contract.seeds import SEEDED, SEEDS
from stream_rater.operations.follow import in_utc, outcome_of
from stream_rater.pipeline.corrections.edits_in_force import APPLIED, LadderEdits, correction_of
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.ports import RecordedCorrection
from stream_rater.places.checks import disagreement
from stream_rater.places.port import ANSWER_S, Place
from stream_rater.rating import record as belief_record
from stream_rater.rating.factor import factors_of, weights_of
from stream_rater.rating.seasons import seen
from stream_rater.rating.stages import RatingRule, rule_of
from stream_rater.runtime.progress import unknown_ladder

LAST_ROUNDS = 5  # The number of a player's latest rounds that are shown.
SEARCH_S = 5.0  # The longest time of the search for these rounds, in seconds.


def inspect(settings: Settings, ladder: str | None, player: str | None) -> Iterator[str]:
    """Yield lines about a player's belief; about a ladder if `player` is None; about all topics if
    `ladder` is None, too. Raises BadConfiguration or Failed."""
    timeout_s = places.COMMAND_TIMEOUT_S if ladder else ANSWER_S
    with errors.named_failures(), closing(places.place_of(settings, timeout_s=timeout_s)) as place:
        if ladder is None:
            lines = _sections(place)
        elif player is None:
            lines = _ladder(place, ladder)
        else:
            lines = _player(place, ladder, player)
        yield from lines


# --- a ladder ------------------------------------------------------------------------------------


def _ladder(place: Place, ladder: str) -> Iterator[str]:
    ladder_log = place.ladder_log()
    recorded = ladder_log.corrections.get(ladder, ())
    if not recorded and ladder not in ladder_log.ladders:
        raise errors.Failed(unknown_ladder(ladder, ladder_log.ladders))
    yield from corrections_of(ladder, LadderEdits(recorded))


def corrections_of(ladder: str, edits: LadderEdits) -> Iterator[str]:
    """Yield a line for each applied correction, in order, and for each deferred one."""
    yield f"{events.shown(ladder)}: corrections applied: {len(edits.recorded) or 'none'}"
    for recorded in edits.recorded:
        together = f", by that at {recorded.at}" if recorded.at != recorded.offset else ""
        yield f"  {recorded.offset:>10} {_correction_text(recorded)}{together}"
    waiting = edits.waiting(2**63)
    yield f"corrections that wait for {APPLIED}: {len(waiting) or 'none'}"
    for recorded in waiting:
        yield f"  {recorded.offset:>10} {_correction_text(recorded)}"


def _correction_text(recorded: RecordedCorrection) -> str:
    correction: Correction = correction_of(recorded)
    names = ("round_id", "player", "into", "since", "until", "season", "keep", "sigma")
    fields = [f"{name} {value}" for name in names if (value := getattr(correction, name, None))]
    reason = f" ({correction.reason})" if correction.reason else ""
    return events.shown(" ".join([recorded.event_type, *fields]) + reason)


# --- a player ------------------------------------------------------------------------------------


def _player(place: Place, ladder: str, player: str) -> Iterator[str]:
    shard = int(sharding.shards_of([player], place.shards)[0])
    stored = place.read({shard: player_column.PlayerColumn.of([(ladder, player)])})[shard]
    (record,) = stored.records
    ladder_log = place.ladder_log()
    if record is None:
        raise errors.Failed(_unknown_player(ladder, player, shard, ladder_log.ladders))
    values, begin = _last_events(place, events.joined(ladder, player).encode(), shard, record)
    yield from _belief(place, ladder, player, record, ladder_log, seed_in(values))
    yield place.where(ladder, player, shard, len(record))
    yield f"last rounds, by {place.events_of(shard)}, from offset {begin} on:"
    for value in values:
        if value is None:
            yield "  erased: these topics are an old generation (`stream-rater erase`)"
            continue
        event = events.rating_changed_from_json(value)
        yield f"  {in_utc(event.completed_at)}  {outcome_of(event)}"
    if not values:
        yield "  none"


def _last_events(
    place: Place, key: bytes, home: int, data: bytes
) -> tuple[list[bytes | None], int]:
    """The values of a player's last events, oldest first, and the offset down to which the shard
    `home`, which is the player's, was searched. Other shards are searched if these events do not
    lead to the belief, `data`, one by one: older events may be elsewhere, from before shards were
    added or, in a data file, from before `erase`."""
    (header,) = belief_record.read_headers(data[: belief_record.HEADER_SIZE])
    # A count above the number of rounds would search the whole partition. It may be 0.
    count, end_s = max(1, min(LAST_ROUNDS, int(header["rounds"]))), time.monotonic() + SEARCH_S
    values, begin = place.last_events(home, key, count, SEARCH_S)
    found = [events.rating_changed_from_json(each) for each in filter(None, values)]
    next_mu = [each.previous_mu for each in found[1:]]
    next_mu.append(header["previous_mu" if header["untold"] else "mu"])
    if len(found) < count or [each.mu for each in found] != next_mu:
        for shard in {*range(place.shards)} - {home}:
            left_s = max(0.0, end_s - time.monotonic())
            values += place.last_events(shard, key, count, left_s)[0]
        values.sort(key=events.offset_of)
    return values[-count:], begin


def _belief(
    place: Place, ladder: str, player: str, record: bytes, ladder_log: LadderLog,
    seed: events.CorrectionCause | None,
) -> Iterator[str]:  # fmt: skip
    """Yield lines that describe a belief. `seed`: the seed or reset in the newest event."""
    ladders = places.ladders_of(place.settings)
    terms = ladders.find(ladder, place.end_of(ladder))
    if why := disagreement(place, ladders, ladder_log, only=ladder):
        print(f"warning: {why}: the shown rating is left out", file=sys.stderr)
        terms = None  # no rating was displayed by these parameters
    beliefs = belief_record.decode([record], 0, 0.0, 1.0)
    header: Any = beliefs.header[0]
    edits = LadderEdits(ladder_log.corrections.get(ladder, ()))
    rule = None if terms is None else rule_of(terms.rating, edits.last.started)
    yield f"{events.shown(player)} on {events.shown(ladder)}"
    if rule is not None:
        mu, sigma = seen(rule, beliefs.header)
        yield f"shown: {rule.rating(mu[0], sigma[0]):.1f}"
    last = int(header["last"])
    cause = seed.cause if seed is not None and seed.offset == last else cause_of(edits, last)
    yield from belief_lines(header, factors_of(beliefs)[0], cause)
    yield from seasons_of(header, edits, rule)


def seed_in(values: Sequence[bytes | None]) -> events.CorrectionCause | None:
    """The seed or reset that the last of these events reports; None if it reports something else.
    An event without a value was erased."""
    value = values[-1] if values else None
    cause = None if value is None else events.rating_changed_from_json(value).correction
    return cause if cause is not None and cause.cause in SEEDS else None


def cause_of(edits: LadderEdits, last: int) -> str:
    """The kind of the correction at the offset of a belief's last change; empty for a round."""
    return next((each.event_type for each in edits.recorded if each.offset == each.at == last), "")


def seasons_of(header: Any, edits: LadderEdits, rule: RatingRule | None) -> Iterator[str]:
    """Yield lines about the season of a belief, and about its mu and sigma as drawn by later
    seasons. `rule`: None if the parameters are unknown."""
    started = edits.last.started
    if not started:
        return
    season = int(header["season"])
    since = ", ".join(str(each.number) for each in started[season:])
    yield (
        f"season {started[-1].number}; the last round was "
        + (f"in season {started[season - 1].number}" if season else "before the first")
        + (f"; still to be drawn by season {since}" if since else "")
    )
    if since and rule is not None and header["rounds"] > 0:
        (mu,), (sigma,) = seen(rule, np.array([header]))
        yield f"drawn: {mu:.1f} give or take {sigma:.1f}"


def _unknown_player(ladder: str, player: str, shard: int, rated: Sequence[str]) -> str:
    if ladder in rated:
        return f"ladder {ladder!r} has no player {player!r} (they would be in shard {shard})"
    return unknown_ladder(ladder, rated)


def belief_lines(header: Any, factors: Floats, cause: str = "") -> Iterator[str]:
    """Yield lines that describe a belief. `header`: one of HEADER. `factors`: (capacity, 3), rows
    (p, a, r). `cause`: the kind of correction, seed or reset that came last; empty for a round."""
    yield f"believed: {_spread(header['mu'], header['sigma'])}, after {header['rounds']} rounds"
    before = _spread(header["previous_mu"], header["previous_sigma"])
    time, last = _time_text(int(header["time"])), f"at offset {header['last']} of its partition"
    if cause == SEEDED:
        yield f"given by a seed, {last}; it counts from {time}"
    elif cause:
        yield f"changed last by {cause}, {last}; last published before it: {before}"
        if header["untold"]:
            yield "this change was too small for an event of its own: the next event includes it"
        if header["rounds"]:
            yield f"the last round was completed at {time}"
    else:
        yield f"before the last one: {before}; it was completed at {time}, {last}"
    if not header["count"]:
        return
    performances = factors[: header["count"]]
    weights = weights_of(header, performances)
    total = float(header["precision"] + weights.sum())
    yield (
        f"by a Gaussian factor: {_spread(header['center'], 1.0 / math.sqrt(header['precision']))}, "
        f"{header['precision'] / total:.0%} of the weight"
    )
    count = len(performances)
    yield f"and {count} performances, with their parts of the weight, the heaviest first:"
    for i in np.argsort(-weights, kind="stable"):
        yield f"  {performances[i, 0]:8.1f} {weights[i] / total:6.1%}"


def _spread(mu: float, sigma: float) -> str:
    return f"{mu:.1f} give or take {sigma:.1f}"


def _time_text(seconds: int) -> str:
    try:
        return in_utc(datetime.fromtimestamp(seconds, UTC).isoformat())
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"


# --- all topics ----------------------------------------------------------------------------------


def _sections(place: Place) -> Iterator[str]:
    for section in place.sections():
        yield section.title
        if section.columns:
            yield f"  {'':>5}" + "".join(f" {name:>10}" for name in section.columns)
        for p in section.rows:
            yield f"  {p:>5}" + "".join(f" {each[p]!s:>10}" for each in section.columns.values())
        yield from section.remarks
