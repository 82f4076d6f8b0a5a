"""The live leaderboard: tables that move on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from demonstration.figures import Event, Phase
from examples.matchmaking import Ratings

PLACES = 8
NAME = 8
"""Width of a player's name, so that the tables keep still."""
FRAME_S = 0.2
LINE_EVERY_S = 3.0


class Screen:
    """Shows ratings while rounds stream in."""

    def __init__(
        self, console: Console, ratings: Ratings, skills: Mapping[str, Mapping[str, float]]
    ) -> None:
        self._console = console
        self._ratings = ratings
        self._skills = skills
        self._changes: dict[tuple[str, str], float] = {}
        self._began_s = self._shown_s = time.monotonic()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        elif kind is None:
            self._console.print(self._leaderboards())

    def show(
        self, phase: Phase, events: Sequence[Event], title: str, *, last: bool = False
    ) -> None:
        """Take new events in, and draw when it is time to."""
        for event in events:
            change = event["rating"] - event["previous_rating"]
            self._changes[event["ladder"], event["player"]] = change
        now_s = time.monotonic()
        wait_s = LINE_EVERY_S if self._live is None else FRAME_S
        if not last and now_s - self._shown_s < wait_s:
            return
        self._shown_s = now_s
        line = f"{now_s - self._began_s:5.1f} s  {title}: {self._progress(phase)}"
        if self._live is not None:
            self._live.update(Group(self._leaderboards(), Text(line)), refresh=True)
        else:
            self._console.print(f"{line}  {self._leaders()}", soft_wrap=True, highlight=False)

    def _progress(self, phase: Phase) -> str:
        return (
            f"{len(phase.rounds):,} rounds, {phase.changes:,} rating changes, "
            f"{phase.per_second:,.0f} a second"
        )

    def _leaders(self) -> str:
        best = {ladder: self._best(ladder)[:1] for ladder in sorted(self._ratings.ladders)}
        return "  ".join(
            f"{ladder}: {player} {rating.shown:.0f}"
            for ladder, leaders in best.items()
            for player, rating in leaders
        )

    def _best(self, ladder: str) -> list[tuple[str, Any]]:
        table = self._ratings.ladders.get(ladder, {})
        return sorted(table.items(), key=lambda item: (-item[1].shown, item[0]))

    def _leaderboards(self) -> Group:
        tables = [self._leaderboard(ladder) for ladder in sorted(self._skills)]
        return Group(Columns(tables, padding=(1, 5)), Text("\ntrue: place by hidden skill"))

    def _leaderboard(self, ladder: str) -> Table:
        skills = self._skills[ladder]
        truth = {name: i for i, name in enumerate(sorted(skills, key=lambda n: -skills[n]), 1)}
        table = Table(title=ladder, box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for heading in ("", "player", "rating", "last", "rounds", "true"):
            table.add_column(heading, justify="left" if heading == "player" else "right")
        for place, (player, rating) in enumerate(self._best(ladder)[:PLACES], start=1):
            change = self._changes.get((ladder, player), 0.0)
            table.add_row(
                str(place), player.ljust(NAME), f"{rating.shown:.0f}", _coloured(change),
                str(rating.rounds), str(truth.get(player, "")),
            )  # fmt: skip
        return table


def _coloured(change: float) -> Text:
    return Text(f"{change:+.0f}", style="green" if change >= 0.0 else "red")
