"""`stream-rater correct … --dry-run`: who would move by how much. Nothing is sent."""

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from stream_rater.cli.corrections import (
    APPLIED,
    Planned,
    announce,
    applied,
    check_all,
    check_taken,
    fail_if_any,
)
from stream_rater.cli.rate import RatingLine, rating_lines
from stream_rater.cli.rounds_file import RoundsFile
from stream_rater.cli.terminal import file_failures, tables
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.files import service_ladders
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import shown
from stream_rater.contract.record import Record
from stream_rater.replay.correction_preview import Foreseen, foresee
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.progress import counted

if TYPE_CHECKING:
    from rich.table import Table

SHOWN_PLAYERS = 20
"""Of those who would move, a table shows so many unless told otherwise."""


class Move(msgspec.Struct):
    """What corrections would do to a player, as `--format json` writes it."""

    ladder: str
    player: str
    rating_before: float | None
    """The shown rating; None where the player has played no round."""
    rating_after: float | None
    difference: float | None
    """None where one of them is."""
    rounds_before: int
    rounds_after: int


class Log(NamedTuple):
    """A log to rate, that of a file or of a partition of `round-completed`."""

    again: Callable[[], Iterable[Record]]
    partition: int = 0
    partitions: int = ANYWHERE
    received_s: float = float("inf")
    """When a correction that comes now is taken in."""


def dry_run(
    plan: Sequence[Planned], settings: Settings, file: Path | None, top: int | None, *,
    as_json: bool,
) -> None:  # fmt: skip
    """Print who would move; if the corrections wait, by applying them."""
    ladders, ladder = service_ladders(settings), plan[0].ladder
    check_all(plan, ladders)
    if plan[-1].batched:
        plan = [*plan, applied(ladder, "")]
    if file is not None:
        with file_failures():
            found = _foresee(Log(RoundsFile(file).records), plan, ladders, settings)
    else:
        from stream_rater.adapters.kafka.topics import Admin
        from stream_rater.operations.live_log import ends_of
        from stream_rater.runtime.failures import named_failures

        with named_failures():
            check_taken(plan, ladders, ends_of(Admin(settings)))
            found = _foresee(_live(settings, ladders, ladder), plan, ladders, settings)
    for offset, invalid in found.others_refused:
        print(f"waiting at offset {offset}: {invalid.code}: {invalid}", file=sys.stderr)
    bad = [plan[i].tell(invalid) for i, invalid in found.refused]
    if not bad or len(bad) < sum(each.kind != APPLIED for each in plan):
        _show(found, ladder, top, as_json=as_json)
    fail_if_any(bad, len(plan), "would be refused")


def _foresee(
    log: Log, plan: Sequence[Planned], ladders: Ladders, settings: Settings
) -> Foreseen:  # fmt: skip
    announce(plan)
    records = [
        Record(log.partition, 0, each.value, each.headers, received_s=log.received_s)
        for each in plan
    ]
    return foresee(
        log.again, records, plan[0].ladder, ladders, settings.duplicate_window, log.partitions
    )


def _live(settings: Settings, ladders: Ladders, ladder: str) -> Log:
    """What the ladder's partition holds now."""
    from stream_rater.operations.live_log import live_log

    again, partition, partitions = live_log(settings, ladders, ladder)
    return Log(again, partition, partitions, time.time())


# --- who moves -----------------------------------------------------------------------------------


def moves_of(before: Iterable[RatingLine], after: Iterable[RatingLine]) -> list[Move]:
    """Whom two ratings of a ladder tell otherwise: who has no round before or after it first, then
    by the difference of the shown ratings, the largest first."""
    old, new = ({each.player: each for each in lines} for lines in (before, after))
    moves = [_move(old.get(who), new.get(who)) for who in old | new if old.get(who) != new.get(who)]
    moves.sort(key=_most_first)
    return moves


def _most_first(move: Move) -> tuple[bool, float, str]:
    return move.difference is not None, -abs(move.difference or 0.0), move.player


def _move(old: RatingLine | None, new: RatingLine | None) -> Move:
    some = old or new
    assert some is not None
    difference = None if old is None or new is None else new.rating - old.rating
    return Move(
        some.ladder, some.player, None if old is None else old.rating,
        None if new is None else new.rating, difference, 0 if old is None else old.rounds,
        0 if new is None else new.rounds,
    )  # fmt: skip


def _lines(replay: Replay, ladder: str) -> list[RatingLine]:
    pool = replay.pools.get(ladder)
    return [] if pool is None else rating_lines(ladder, pool, records=False)


def _show(found: Foreseen, ladder: str, top: int | None, *, as_json: bool) -> None:
    before, after = _lines(found.before, ladder), _lines(found.after, ladder)
    moves = moves_of(before, after)
    of = len({each.player for each in itertools.chain(before, after)})
    told = (
        f"{len(moves):,} of {counted(of, 'player')} would move; {found.touched:,} of "
        f"{counted(found.rounds, 'round')} would be touched"
    )
    if as_json:
        for each in moves[:top]:
            print(msgspec.json.encode(each).decode())
        print(told, file=sys.stderr)
        return
    if moves:
        tables().print(table_of(ladder, moves[: top or SHOWN_PLAYERS]))
    print(told)


def table_of(ladder: str, moves: Sequence[Move]) -> "Table":
    """A row for each player."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"ladder {ladder!r}"), title_justify="left")
    table.add_column("player", overflow="fold")
    for heading in ("before", "after", "difference", "rounds before", "after"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in moves:
        table.add_row(Text(shown(each.player)), *_columns(each))
    return table


def _columns(move: Move) -> Iterator[str]:
    """A row but for the player; a dash where there is no rating."""
    for value, form in (
        (move.rating_before, "{:,.1f}"), (move.rating_after, "{:,.1f}"),
        (move.difference, "{:+,.1f}"),
    ):  # fmt: skip
        yield "–" if value is None else form.format(value)
    yield f"{move.rounds_before:,}"
    yield f"{move.rounds_after:,}"
