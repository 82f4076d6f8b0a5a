"""The checks that commands make of a place. Each error is one line, with the place and the cure."""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX
from stream_rater.contract import season_ended
from stream_rater.contract.events import ESTIMATORS, UPDATERS, shown
from stream_rater.contract.record import Record
from stream_rater.pipeline import ladder_history
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.places.port import Place
from stream_rater.runtime.progress import counted

LOOK_S = 0.2  # The time between two looks at how far the workers are.
SAY_EVERY_S = 10.0  # The shortest time between two lines about it.


def disagreement(
    place: Place, ladders: Ladders, ladder_log: LadderLog, only: str | None = None
) -> str:
    """How the ladders file contradicts the ladder events of all ladders, or of `only` this one, in
    one line with the remedy; empty if it does not. With another file than the workers', a command
    would report differences that do not exist, or show numbers that were never published."""
    history, first = ladders.by_table(ladders.history), ladder_history.first_contradiction
    some = [ladder for ladder in ladder_log.recorded if only in (None, ladder)]
    offsets = {each: first(history(each), ladder_log.in_force(each)) for each in some}
    found = {ladder: offset for ladder, offset in offsets.items() if offset < math.inf}
    if not found:
        return ""
    ladder, offset = next(iter(found.items()))
    others = {1: "", 2: " (and 1 other)"}.get(len(found), f" (and {len(found) - 1} others)")
    variable, path = f"{PREFIX}LADDERS", place.settings.ladders
    file_description = (
        f"the ladders file {path}" if path else f"the default parameters ({variable} is not set)"
    )
    what = f"ladder {ladder!r}" if ladder else "[limits]"
    return (
        f"{what}{others}: {file_description} and the notes {place.notes} differ from offset "
        f"{offset:.0f} on: set {variable} to the ladders file of the workers"
    )


def agreed(place: Place, ladders: Ladders, outcome: str, only: str | None = None) -> LadderLog:
    """The ladder events of a place. Raises BadConfiguration, with the `outcome` at its end, if the
    ladders file is not that of the workers, for all ladders or for `only` this one."""
    ladder_log = place.ladder_log()
    if why := disagreement(place, ladders, ladder_log, only):
        raise BadConfiguration(f"{why}: {outcome}")
    return ladder_log


def whole_seasons(records: Iterable[Record]) -> Iterator[Record]:
    """Yield records of past seasons. At the end, raise Failed if a season is incomplete."""
    begun, kept = set[tuple[str, int]](), set[tuple[str, int]]()
    for record in records:
        if (found := season_ended.decoded(record)) is not None:
            is_kept = isinstance(found, season_ended.SeasonKept)
            (kept if is_kept else begun).add((found.ladder, found.season))
            yield record
    for ladder, season in begun - kept:
        raise Failed(
            f"ladder {shown(ladder)!r}, season {season}: only a part of its standings is written: "
            f"run `stream-rater season-standings {shown(ladder)} {season}` to its end, then this "
            "again"
        )


def still_behind(records: int) -> Failed:
    """The error of a command that waited in vain for this many records to be rated."""
    return Failed(
        f"the workers are {counted(records, 'record')} behind: nothing was written: run it again "
        "once they have caught up, or let it wait longer, by --wait"
    )


def wait_until_idle(
    looks: Iterator[tuple[int, int]], members: Callable[[str], int], wait_s: float
) -> None:
    """Return once the workers have nothing left to do. `looks` yields how many records estimators
    and updaters have left, `members` counts the members of a group. Prints at intervals how many
    are left, if that has changed. Raises Failed."""
    deadline_s, said, next_s = time.monotonic() + wait_s, 0, 0.0
    for to_estimate, to_apply in looks:
        left = to_estimate + to_apply
        if left == 0:
            return
        for role, group, own in (
            ("estimator", ESTIMATORS, to_estimate), ("updater", UPDATERS, to_apply),
        ):  # fmt: skip
            if own and not members(group):
                raise Failed(
                    f"{counted(own, 'record')} of an {role}'s work left, and no worker with this "
                    "role runs: start one (`stream-rater run`): nothing was compared"
                )
        if (now_s := time.monotonic()) > deadline_s:
            raise Failed(f"the workers are {counted(left, 'record')} behind: nothing was compared")
        if left != said and now_s >= next_s:
            print(
                f"waiting for the workers, which are {counted(left, 'record')} behind, "
                f"for {deadline_s - now_s:.0f} s at most",
                file=sys.stderr,
            )
            said, next_s = left, now_s + SAY_EVERY_S
        time.sleep(LOOK_S)
