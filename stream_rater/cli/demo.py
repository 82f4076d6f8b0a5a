"""`stream-rater demo`: plays a season in memory."""

import time
from typing import TYPE_CHECKING

import click

from stream_rater.cli.correct import table_of
from stream_rater.cli.options import COUNT, one_line_errors, table_console
from stream_rater.config.errors import BadConfiguration
from stream_rater.runtime.progress import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from stream_rater.operations.demo import DemoSeason

SHOWN_MOVES = 6
"""The largest number of players in the table about the cheater's removal."""


@click.command()
@click.option("--embedded", is_flag=True, help="In memory: no servers, nothing durable.")
@click.option("--rounds", type=COUNT, default=300, show_default=True, help="Length of the season.")
@one_line_errors
def demo(embedded: bool, rounds: int) -> None:
    """A made-up season, rated as the service would."""
    if not embedded:
        raise BadConfiguration(
            "`make demo` shows the service on real servers; here, give --embedded"
        )
    play(rounds, table_console())


def play(rounds: int, console: "Console") -> None:
    """Play a season with a live leaderboard. Then show the speed, and remove the cheater."""
    from rich.live import Live

    from stream_rater.operations.demo import DemoSeason

    season = DemoSeason()
    began_s = time.perf_counter()
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        for number in range(rounds):
            season.play(number)
            live.update(leaderboard(season, number + 1))
    took_s = time.perf_counter() - began_s
    console.print(leaderboard(season, rounds))
    console.print(
        f"{rounds} rounds, {season.updates} rating changes in {took_s:.1f} s: "
        f"{season.updates / took_s:,.0f} a second, one round at a time, in memory.\n",
        soft_wrap=True,
    )
    _find_cheater(season, console)
    console.print(
        "\nNothing was durable: `make demo` runs the same state machines on Kafka and Redis.",
        soft_wrap=True,
    )


def _find_cheater(season: "DemoSeason", console: "Console") -> None:
    """Remove the cheater, and show how the ratings move."""
    from stream_rater.operations.demo import CHEATER, LADDER, player_id

    cheater, wins = player_id(CHEATER), season.wins
    played = season.newest[cheater].rounds
    console.print(
        f"A cheater was found: {cheater} won {wins[cheater]} of {counted(played, 'round')}. "
        "Removed by the event of `correct remove`:",
        soft_wrap=True,
    )
    moves = season.remove(cheater)
    console.print(table_of(LADDER, moves[:SHOWN_MOVES]))
    gained = sum((each.difference or 0.0) > 0.0 for each in moves)
    console.print(
        f"{gained} of {len(season.newest) - 1} other players got points back. "
        f"{season.verify()} ratings compared with a replay without {cheater}: all equal, bit for "
        "bit.",
        soft_wrap=True,
    )


def leaderboard(season: "DemoSeason", rounds: int) -> "Table":
    """A table of the ten best players. `rounds`: the number of rounds that were played."""
    from rich.table import Table

    from stream_rater.operations.demo import player_id

    table = Table(title=f"Leaderboard after {rounds} rounds")
    for heading in ("", "player", "rating", "rounds", "true skill"):
        table.add_column(heading, justify="left" if heading == "player" else "right")
    skill = {player_id(i): each for i, each in enumerate(season.skills)}
    best = sorted(season.newest.values(), key=lambda event: -event.rating)[:10]
    for place, each in enumerate(best, start=1):
        table.add_row(
            str(place), each.player, f"{each.rating:.0f}", str(each.rounds),
            f"{skill[each.player]:.0f}",
        )  # fmt: skip
    return table
