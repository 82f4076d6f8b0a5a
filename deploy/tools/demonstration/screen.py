"""The leaderboard: a live table on a terminal; elsewhere, a line every few seconds."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from demonstration.figures import Phase
from examples.matchmaking import Ratings

PLACES = 8
FRAME_S, LINE_EVERY_S = 0.2, 3.0
"""The least seconds between two pictures on a terminal, and between two lines elsewhere."""


class Screen:
    """Shows ratings while rounds stream in, beside the true order by hidden skill."""

    def __init__(
        self, console: Console, ratings: Ratings, skills: Mapping[str, Mapping[str, float]]
    ) -> None:
        self._console = console
        self._ratings = ratings
        self._skills = skills
        self._began_s = self._shown_s = time.monotonic()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    @contextmanager
    def on(self) -> Iterator[Self]:
        """Use the screen in the block. Without a terminal, tables are printed at the end."""
        if self._live is not None:
            with self._live:
                yield self
        else:
            yield self
            self._console.print(self._leaderboards())

    def show(self, phase: Phase, title: str, *, last: bool = False) -> None:
        """Draw, unless the last picture is too recent."""
        now_s = time.monotonic()
        wait_s = LINE_EVERY_S if self._live is None else FRAME_S
        if not last and now_s - self._shown_s < wait_s:
            return
        self._shown_s = now_s
        line = (
            f"{now_s - self._began_s:5.1f} s  {title}: {len(phase.rounds):,} rounds, "
            f"{phase.changes:,} rating changes, {phase.per_second:,.0f} a second"
        )
        if self._live is not None:
            self._live.update(Group(self._leaderboards(), Text(line)), refresh=True)
        else:
            self._console.print(line, soft_wrap=True, highlight=False)

    def _leaderboards(self) -> Columns:
        return Columns([self._leaderboard(each) for each in sorted(self._skills)], padding=(1, 5))

    def _leaderboard(self, ladder: str) -> Table:
        skills = self._skills[ladder]
        truth = {name: i for i, name in enumerate(sorted(skills, key=lambda n: -skills[n]), 1)}
        players = self._ratings.ladders.get(ladder, {})
        table = Table(title=ladder, box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for heading in ("", "player", "rating", "rounds", "true place"):
            table.add_column(heading, justify="left" if heading == "player" else "right")
        best = sorted(players.items(), key=lambda item: (-item[1].shown, item[0]))[:PLACES]
        for place, (player, rating) in enumerate(best, start=1):
            table.add_row(
                str(place), player.ljust(8), f"{rating.shown:.0f}", str(rating.rounds),
                str(truth.get(player, "")),
            )  # fmt: skip
        return table
