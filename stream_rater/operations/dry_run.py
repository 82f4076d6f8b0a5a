"""`stream-rater correct … --dry-run`: computes how corrections would change ratings. It sends
nothing.

Only a dry run on Kafka needs the packages of the service.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.errors import named_failures
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Record
from stream_rater.operations import corrections
from stream_rater.operations.corrections import Planned
from stream_rater.operations.input_file import RoundsFile, file_failures
from stream_rater.operations.rate import RatingLine, rating_lines
from stream_rater.replay.correction_preview import CorrectionPreview, preview_corrections
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.progress import counted


class Move(msgspec.Struct):
    """A player's ratings before and after corrections, as `--format json` writes them."""

    ladder: str
    player: str
    rating_before: float | None
    """The displayed rating; None where the player has no round."""
    rating_after: float | None
    difference: float | None
    """The rating after less the rating before; None where one of them is None."""
    rounds_before: int
    rounds_after: int


class DryRun(NamedTuple):
    """The effect that corrections of a ladder would have."""

    ladder: str
    moves: list[Move] | None
    """The players whose ratings would change. Players without a round before or after the
    corrections come first, then the others, the largest difference first. None if all corrections
    would be rejected."""
    summary: str
    """A sentence with the numbers of players and rounds that would change."""
    rejected: list[str]
    """An error line for each correction that would be rejected."""
    corrections: int
    """The number of corrections that the command would send."""

    def conclude(self) -> None:
        """Raise Failed if corrections would be rejected."""
        corrections.fail_if_any(self.rejected, self.corrections, "would be refused")


def dry_run(plan: Sequence[Planned], settings: Settings, file: Path | None) -> DryRun:
    """Replay the ladder's log without and with these corrections. `file`: a file of rounds; None
    for the log on Kafka.

    If the corrections would be deferred, the replay applies them with all that the log has
    deferred. Raises BadConfiguration or Failed.
    """
    ladders, ladder = ladders_of_settings(settings), plan[0].ladder
    corrections.check_all(plan, ladders)
    if plan[-1].batched:
        plan = [*plan, corrections.applied(ladder, "")]
    if file is not None:
        with file_failures():
            preview = _preview(_LogSource(RoundsFile(file).records), plan, ladders, settings)
    else:
        from stream_rater import places
        from stream_rater.operations.live_log import live_log

        with named_failures(), places.opened(settings) as place:
            corrections.check_accepting(plan, ladders, place.end_of)
            read_log, partition = live_log(place, ladders, ladder)
            log = _LogSource(read_log, partition, place.partitions, time.time())
            preview = _preview(log, plan, ladders, settings)
    for offset, invalid in preview.others_rejected:
        print(f"waiting at offset {offset}: {invalid.code}: {invalid}", file=sys.stderr)
    return _result(plan, preview)


class _LogSource(NamedTuple):
    """A log to rate: that of a file, or of a partition of `round-completed`."""

    read_log: Callable[[], Iterable[Record]]
    """A function that yields all records at each call."""
    partition: int = 0
    partitions: int = ANYWHERE
    received_s: float = float("inf")
    """The time at which a correction that is sent now is received, Unix seconds."""


def _preview(
    log: _LogSource, plan: Sequence[Planned], ladders: Ladders, settings: Settings
) -> CorrectionPreview:
    corrections.announce(plan)
    records = [
        Record(log.partition, 0, each.value, each.headers, received_s=log.received_s)
        for each in plan
    ]
    window = settings.duplicate_window
    return preview_corrections(
        log.read_log, records, plan[0].ladder, ladders, window, log.partitions
    )


def _result(plan: Sequence[Planned], preview: CorrectionPreview) -> DryRun:
    ladder = plan[0].ladder
    rejected = [plan[i].rejected(invalid) for i, invalid in preview.rejected]
    if rejected and len(rejected) >= sum(each.kind != corrections.APPLIED for each in plan):
        return DryRun(ladder, None, "", rejected, len(plan))
    before, after = _lines(preview.before, ladder), _lines(preview.after, ladder)
    moves = moves_of(before, after)
    players = counted(len({each.player for each in (*before, *after)}), "player")
    rounds = counted(preview.rounds, "round")
    seeds = f" and {counted(preview.seeds, 'seed')}" if preview.seeds else ""
    summary = (
        f"{len(moves):,} of {players} would move; {preview.touched:,} of {rounds}{seeds} would be "
        "touched"
    )
    return DryRun(ladder, moves, summary, rejected, len(plan))


def _lines(replay: Replay, ladder: str) -> list[RatingLine]:
    pool = replay.pools.get(ladder)
    return [] if pool is None else rating_lines(ladder, pool, records=False)


def moves_of(before: Iterable[RatingLine], after: Iterable[RatingLine]) -> list[Move]:
    """The players whose rating differs between two replays. Players who are in only one of them
    come first, then the others, the largest difference first."""
    old, new = ({each.player: each for each in lines} for lines in (before, after))
    pairs = ((old.get(player), new.get(player)) for player in old | new)
    moves = [_move(*pair) for pair in pairs if pair[0] != pair[1]]
    return sorted(moves, key=_largest_first)


def _largest_first(move: Move) -> tuple[bool, float, str]:
    return move.difference is not None, -abs(move.difference or 0.0), move.player


def _move(old: RatingLine | None, new: RatingLine | None) -> Move:
    line = old or new
    assert line is not None
    difference = None if old is None or new is None else new.rating - old.rating
    return Move(
        line.ladder, line.player, None if old is None else old.rating,
        None if new is None else new.rating, difference, 0 if old is None else old.rounds,
        0 if new is None else new.rounds,
    )  # fmt: skip
