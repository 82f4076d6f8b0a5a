"""`stream-rater correct … --dry-run`: computes how corrections would change ratings. It sends
nothing. Only a dry run on Kafka needs the packages of the service."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config import errors, files
from stream_rater.config.ladders import BETTER_LADDER, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged
from stream_rater.contract.record import Record
from stream_rater.operations import corrections, input_file
from stream_rater.operations.corrections import Planned
from stream_rater.operations.rate import RatingLine, rating_lines
from stream_rater.replay.what_if import CorrectionPreview, preview_corrections
from stream_rater.runtime.progress import counted
from stream_rater.tables.reading import Reading


class Move(msgspec.Struct):
    """A player's ratings before and after corrections, as `--format json` writes them."""

    ladder: str
    player: str
    rating_before: float | None  # The displayed rating; None where the player has no round.
    rating_after: float | None
    difference: float | None  # The change of the rating; None if one of the two is None.
    rounds_before: int
    rounds_after: int


class DryRun(NamedTuple):
    """The effect that corrections of a ladder would have."""

    ladder: str
    moves: list[Move] | None
    """The players whose ratings would change. Those who have no round before or after come first,
    then the largest differences. None if all corrections would be rejected."""
    summary: str  # A sentence with the numbers of players and rounds that would change.
    rejected: list[str]  # An error line for each correction that would be rejected.
    corrections: int  # The number of corrections that the command would send.

    def conclude(self) -> None:
        """Raise Failed if corrections would be rejected."""
        corrections.fail_if_any(self.rejected, self.corrections, "would be refused")


def dry_run(
    plan: Sequence[Planned], settings: Settings, file: Path | None, reading: Reading
) -> DryRun:
    """Replay the ladder's log, or a file of rounds, without and with these corrections. Deferred
    ones are applied with all that the log has deferred. Raises BadConfiguration or Failed."""
    from stream_rater import places

    offline = files.ladders_of_settings(settings, BETTER_LADDER)
    ladders = offline if file else places.ladders_of(settings)
    ladder = plan[0].ladder
    corrections.check_all(plan, ladders)
    if plan[-1].batched:
        plan = [*plan, corrections.applied(ladder, "")]
    if file is not None:
        with input_file.file_failures():
            read = input_file.RoundsFile(file, None, reading).records
            preview = _preview(read, plan, ladders, settings)
    else:
        from stream_rater.operations.ladder_replay import live_log

        with errors.named_failures(), places.opened(settings) as place:
            corrections.check_accepting(plan, ladders, place.end_of)
            read_log, partition = live_log(place, ladders, ladder)
            preview = _preview(
                read_log, plan, ladders, settings, partition, place.partitions, time.time()
            )
    for offset, invalid in preview.others_rejected:
        print(f"waiting at offset {offset}: {invalid.code}: {invalid}", file=sys.stderr)
    return _result(plan, preview)


def _preview(
    read_log: Callable[[], Iterable[Record]], plan: Sequence[Planned], ladders: Ladders,
    settings: Settings, partition: int = 0, partitions: int = ANYWHERE,
    received_s: float = float("inf"),
) -> CorrectionPreview:  # fmt: skip
    """`received_s`: the Unix time at which a correction that is sent now would be received."""
    corrections.announce(plan)
    records = [
        Record(partition, 0, planned.value, planned.headers, received_s=received_s)
        for planned in plan
    ]
    ladder, window = plan[0].ladder, settings.duplicate_window
    return preview_corrections(read_log, records, ladder, ladders, window, partitions)


def _result(plan: Sequence[Planned], preview: CorrectionPreview) -> DryRun:
    ladder = plan[0].ladder
    rejected = [plan[i].rejected(invalid) for i, invalid in preview.rejected]
    if rejected and len(rejected) >= sum(p.kind != corrections.APPLIED for p in plan):
        return DryRun(ladder, None, "", rejected, len(plan))
    pools = (each.pools.get(ladder) for each in (preview.before, preview.after))
    before, after = (
        {line.player: line for line in rating_lines(ladder, pool)} if pool else {} for pool in pools
    )
    every = before | after
    moves = [
        move(before.get(player), after.get(player))
        for player in every
        if before.get(player) != after.get(player)
    ]
    players, rounds = counted(len(every), "player"), counted(preview.rounds, "round")
    seeds = f" and {counted(preview.seeds, 'seed')}" if preview.seeds else ""
    summary = (
        f"{len(moves):,} of {players} would move; {preview.touched:,} of {rounds}{seeds} would be "
        "touched"
    )
    # Players without a difference come first, then the largest differences.
    moves.sort(key=lambda m: (m.difference is not None, -abs(m.difference or 0.0), m.player))
    return DryRun(ladder, moves, summary, rejected, len(plan))


def move(old: RatingLine | RatingChanged | None, new: RatingLine | RatingChanged | None) -> Move:
    """A player's ratings before and after, with the difference; None stands for no rating."""
    line = old or new
    assert line is not None
    before = None if old is None else old.rating
    after = None if new is None else new.rating
    difference = None if before is None or after is None else after - before
    rounds = (old.rounds if old else 0, new.rounds if new else 0)
    return Move(line.ladder, line.player, before, after, difference, *rounds)
