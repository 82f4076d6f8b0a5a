"""What `stream-rater predict` does, once its words are understood (`predict_app`)."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from stream_rater.cli.rate import replayed
from stream_rater.cli.terminal import file_failures, tables, unknown_ladder
from stream_rater.columns.ranges import bounds
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import Entry, shown, to_json
from stream_rater.rating.prediction.balance import even_teams
from stream_rater.rating.prediction.forecast import Forecast, deviations, of_round
from stream_rater.replay.edits import NO_EDITS
from stream_rater.replay.rating_changes import numbers_of
from stream_rater.replay.what_if import KnownBeliefs, RemovedPlayer, believed, foreseen, playing_as
from stream_rater.rounds.validation import Invalid, id_mistake

if TYPE_CHECKING:
    from rich.table import Table

MOST_PAIRS = 8
"""A table shows the pairs of so many sides."""

DID_NOT_FINISH = "-"
RANK = re.compile("[1-9][0-9]{0,8}", re.ASCII)


class Question(NamedTuple):
    """What is asked."""

    sides: list[tuple[str, ...]]
    teams: int | None
    """Into how many teams the players are dealt, if they are."""
    ranks: list[int | None] | None
    """Of each side, None did not finish; if it is asked what would change."""
    variance_factor: float

    @property
    def players(self) -> list[str]:
        """All of them, side by side."""
        return [player for side in self.sides for player in side]


class Player(msgspec.Struct):
    """What is believed of a player, as `--format json` writes it."""

    player: str
    mu: float
    sigma: float
    rating: float
    rounds: int


class Side(msgspec.Struct):
    """What to expect of a side."""

    players: list[Player]
    win: float
    expected_rank: float


class Change(msgspec.Struct):
    """What a result would change of a player."""

    player: str
    mu: float
    sigma: float
    rating: float
    previous_rating: float


class Answer(msgspec.Struct):
    """All of it."""

    ladder: str
    sides: list[Side]
    draw: float
    quality: float
    pairwise: list[list[float]]
    changes: list[Change] | None = None
    """By the ranks that were asked about."""


# --- the question --------------------------------------------------------------------------------


def question_of(
    sides: Sequence[str], teams: int | None, ranks: str | None, variance_factor: float
) -> Question:
    """The words understood. Raises BadConfiguration with the place of the mistake and the cure."""
    found = [_side(f"side {i}", text) for i, text in enumerate(sides, 1)]
    places: dict[str, int] = {}
    for i, player in ((i, player) for i, side in enumerate(found, 1) for player in side):
        if player in places:
            where = f"side {i}" if places[player] == i else f"sides {places[player]} and {i}"
            raise BadConfiguration(f"{where}: player {player!r} stands there twice: name each once")
        places[player] = i
    if teams is not None and not 2 <= teams <= len(places):
        raise BadConfiguration(
            f"--teams {teams}: {len(places)} players can be dealt into 2 to {len(places)} teams"
        )
    count = teams or len(found)
    if count < 2:
        raise BadConfiguration(
            "one side alone: name two at least, as in ann,bob cy,dee, or deal it by --teams 2"
        )
    return Question(found, teams, _ranks(ranks, count), variance_factor)


def _side(place: str, text: str) -> tuple[str, ...]:
    """The players of a side."""
    if text.startswith("["):
        try:
            players = msgspec.json.decode(text, type=list[str])
        except msgspec.DecodeError:
            raise BadConfiguration(
                f'{place}: {text}: no JSON list such as ["ann", "bob"]'
            ) from None
    else:
        players = text.split(",")
    for player in players or [""]:
        if not player:
            raise BadConfiguration(
                f"{place}: {text!r}: an empty id: write ids as in ann,bob cy,dee"
            )
        if mistake := id_mistake(player):
            raise BadConfiguration(f"{place}: {text!r}: player {player!r}: {mistake}")
    return tuple(players)


def _ranks(text: str | None, sides: int) -> list[int | None] | None:
    if text is None:
        return None
    words = text.split(",")
    if len(words) != sides:
        raise BadConfiguration(f"--ranks {text}: {len(words)} for {sides} sides: give one for each")
    for word in words:
        if word != DID_NOT_FINISH and not RANK.fullmatch(word):
            raise BadConfiguration(
                f"--ranks {text}: {word!r} is no rank: give whole numbers from 1 to 999999999, or "
                f"{DID_NOT_FINISH} for who did not finish"
            )
    return [None if word == DID_NOT_FINISH else int(word) for word in words]


# --- the answer ----------------------------------------------------------------------------------


def from_file(
    asked: Question, path: Path, ladders: Ladders, ladder: str | None, *, as_json: bool
) -> None:
    """Rate a file's rounds, as its corrections make them, and answer by the ratings."""
    with file_failures():
        found = replayed(path, ladders)
    pools = found.replay.pools
    if ladder is None:
        if len(pools) > 1:
            names = ", ".join(sorted(pools))
            raise BadConfiguration(f"{path}: it has the ladders {names}: name one by --ladder")
        ladder = next(iter(pools), None)
    if ladder not in pools:
        found.conclude()
        raise Failed(f"{path}: {unknown_ladder(ladder or '', list(pools))}")
    pool = pools[ladder]
    edits = found.verdicts.of(ladder) if found.verdicts else NO_EDITS
    time_s = int(pool.headers(np.arange(len(pool)))["time"].max())
    answer(asked, KnownBeliefs(ladder, pool, edits, time_s), as_json=as_json)
    found.conclude()


def answer(asked: Question, known: KnownBeliefs, *, as_json: bool) -> None:
    """Print what to expect. Raises Failed for a round that cannot be played."""
    sides, pool = asked.sides, known.pool
    try:
        playing = playing_as(asked.players, known)
    except RemovedPlayer as error:
        raise Failed(str(error)) from None
    if asked.teams is not None:
        now = [playing[player] for player in asked.players]
        deviation = deviations(pool.rating, believed(pool, now), asked.teams)
        dealt = even_teams(asked.players, deviation, asked.teams)
        sides = [tuple(asked.players[i] for i in members) for members in dealt]
    starts = bounds(np.array([len(side) for side in sides], np.int64))
    names = [playing[player] for side in sides for player in side]
    known_now = believed(pool, names)
    mu, sigma, rounds = known_now
    found = of_round(pool.rating, starts, np.ones(len(names)), known_now, asked.variance_factor)
    players = [
        Player(player, *row)
        for player, *row in zip(
            chain(*sides), mu.tolist(), sigma.tolist(), pool.rule.rating(mu, sigma).tolist(),
            rounds.tolist(), strict=True,
        )
    ]  # fmt: skip
    told = _answer(known.ladder, players, starts.tolist(), found)
    if asked.ranks is not None:
        told.changes = list(_changes(known, sides, asked.ranks))
    if as_json:
        print(to_json(told).decode())
    else:
        _show(told)


def _answer(
    ladder: str, players: Sequence[Player], starts: Sequence[int], found: Forecast
) -> Answer:
    sides = [
        Side(list(players[first:end]), win, rank)
        for (first, end), win, rank in zip(
            pairwise(starts), found.win.tolist(), found.expected_rank.tolist(), strict=True
        )
    ]
    return Answer(ladder, sides, found.draw, found.quality, found.pairwise.tolist())


def _changes(
    known: KnownBeliefs, sides: Sequence[tuple[str, ...]], ranks: Sequence[int | None]
) -> Iterator[Change]:
    """What the result would do to each player. Raises Failed for a round that cannot be rated."""
    standings = [
        Entry(
            player=side[0] if len(side) == 1 else None, team=side if len(side) > 1 else None,
            rank=rank, dnf=rank is None,
        )
        for side, rank in zip(sides, ranks, strict=True)
    ]  # fmt: skip
    try:
        rated = foreseen(known, standings)
    except Invalid as refusal:
        raise Failed(f"--ranks: {refusal.code}: {refusal}") from None
    if rated is None:
        return
    for player, row in zip(rated.rounds.names.texts(), numbers_of(rated).tolist(), strict=True):
        mu, sigma, _, _, _, rating, previous = row
        yield Change(player, mu, sigma, rating, previous)


# --- tables --------------------------------------------------------------------------------------


def _show(told: Answer) -> None:
    console = tables()
    console.print(table_of(told))
    draw = f", draw {told.draw:.1%}" if told.draw else ""
    print(f"quality {told.quality:.2f}{draw}")
    if told.changes:
        console.print(_table_of_changes(told.changes))
    elif told.changes is not None:
        print("the result would change nothing")


def table_of(told: Answer) -> "Table":
    """A row for each side."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"ladder {told.ladder!r}"), title_justify="left")
    table.add_column("side", overflow="fold")
    pairs = range(len(told.sides)) if 2 < len(told.sides) <= MOST_PAIRS else ()
    for heading in ("win", "mean rank", *(f"over {i + 1}" for i in pairs)):
        table.add_column(heading, justify="right", no_wrap=True)
    for i, side in enumerate(told.sides):
        names = ", ".join(shown(each.player) for each in side.players)
        over = ("–" if i == j else f"{told.pairwise[i][j]:.1%}" for j in pairs)
        table.add_row(Text(names), f"{side.win:.1%}", f"{side.expected_rank:.2f}", *over)
    return table


def _table_of_changes(changes: Sequence[Change]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title="what the result would change", title_justify="left")
    table.add_column("player", overflow="fold")
    for heading in ("rating", "after", "difference"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in changes:
        before, after = each.previous_rating, each.rating
        table.add_row(
            Text(shown(each.player)), f"{before:,.1f}", f"{after:,.1f}", f"{after - before:+,.1f}"
        )
    return table
