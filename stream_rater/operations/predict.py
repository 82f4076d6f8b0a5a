"""`stream-rater predict`: predicts how likely sides are to win a round, and which ratings a result
would change.

Only `from_redis` needs the packages of the service. The command writes nothing.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from stream_rater.columns.ranges import bounds
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import Entry
from stream_rater.operations.input_file import file_failures
from stream_rater.operations.rate import RatedFile, rate_file
from stream_rater.rating.prediction.balance import even_teams
from stream_rater.rating.prediction.forecast import deviations, of_round, shift_of_sides
from stream_rater.rating.seats import SEAT_CURE, is_seat
from stream_rater.replay import what_if
from stream_rater.replay.edits import NO_EDITS
from stream_rater.replay.rating_changes import numbers_of
from stream_rater.rounds.validation import Invalid, id_mistake
from stream_rater.runtime.progress import unknown_ladder

DID_NOT_FINISH = NO_SEAT = NO_SCORE = "-"
RANK = re.compile("[1-9][0-9]{0,8}", re.ASCII)
SCORE = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)


class Question(NamedTuple):
    """A question about a round."""

    sides: list[tuple[str, ...]]
    """The players of each side."""
    teams: int | None
    """The number of even teams into which the players are dealt; None leaves the sides as given."""
    ranks: list[int | None] | None
    """The rank of each side, None for one that did not finish. None if the question is not about a
    result."""
    variance_factor: float
    """The factor by which the variance of a side's performance is multiplied."""
    seats: list[str | None]
    """The seat of each side, None for a side without one."""
    scores: list[float | None]
    """The score of each side, None for a side without one."""

    @property
    def players(self) -> list[str]:
        """The players of all sides, in their order."""
        return [player for side in self.sides for player in side]


class Player(msgspec.Struct):
    """A player's current ratings, as `--format json` writes them."""

    player: str
    mu: float
    sigma: float
    rating: float
    rounds: int


class Side(msgspec.Struct, omit_defaults=True):
    """A side, its probability to win, its mean rank, and its seat if it has one."""

    players: list[Player]
    win: float
    expected_rank: float
    seat: str | None = None


class Change(msgspec.Struct):
    """The ratings of a player after the result in the question."""

    player: str
    mu: float
    sigma: float
    rating: float
    previous_rating: float


class Answer(msgspec.Struct):
    """A prediction, as `--format json` writes it."""

    ladder: str
    sides: list[Side]
    draw: float
    quality: float
    pairwise: list[list[float]]
    changes: list[Change] | None = None
    """The changes by the result; None if the question is not about a result."""


def from_file(
    question: Question, path: Path, ladders: Ladders, ladder: str | None
) -> tuple[Answer, RatedFile]:  # fmt: skip
    """Answer by the ratings after the rounds of a file. `ladder`: None if the file has only one.

    Returns the rated file, too. The caller must call its `conclude`. Raises BadConfiguration or
    Failed.
    """
    with file_failures():
        rated = rate_file(path, ladders)
    pools = rated.replay.pools
    if ladder is None:
        if len(pools) > 1:
            names = ", ".join(sorted(pools))
            raise BadConfiguration(f"{path}: it has the ladders {names}: name one by --ladder")
        ladder = next(iter(pools), None)
    if ladder not in pools:
        rated.conclude()
        raise Failed(f"{path}: {unknown_ladder(ladder or '', list(pools))}")
    pool = pools[ladder]
    edits = rated.verdicts.of(ladder) if rated.verdicts else NO_EDITS
    time_s = int(pool.headers(np.arange(len(pool)))["time"].max(initial=0))
    return _answer(question, what_if.KnownBeliefs(ladder, pool, edits, time_s)), rated


def from_redis(question: Question, settings: Settings, ladder: str) -> Answer:
    """Answer by the ratings in Redis, or in a data file. Raises BadConfiguration if the ladders
    file is not that of the workers. Raises Failed if no round of the ladder was rated, if the
    beliefs are not up to date, if a player was removed, or if a server does not answer."""
    from stream_rater import places
    from stream_rater.config.errors import named_failures
    from stream_rater.places import live_beliefs

    with named_failures(), places.opened(settings) as place:
        try:
            beliefs = live_beliefs.LiveBeliefs(ladders_of_settings(settings), place)
            known = beliefs.of(ladder, question.players)
        except live_beliefs.UnratedLadder as error:
            raise Failed(unknown_ladder(ladder, error.rated)) from None
        except live_beliefs.LaddersDiffer as error:
            raise BadConfiguration(f"{error}: nothing was predicted") from None
        except (live_beliefs.StaleBeliefs, what_if.RemovedPlayer) as error:
            raise Failed(str(error)) from None
    return _answer(question, known)


def _answer(question: Question, known: what_if.KnownBeliefs) -> Answer:
    """The prediction. Raises Failed for a round that cannot be played."""
    sides, pool = question.sides, known.pool
    try:
        playing = what_if.playing_as(question.players, known)
    except what_if.RemovedPlayer as error:
        raise Failed(str(error)) from None
    if question.teams is not None:
        current = [playing[player] for player in question.players]
        deviation = deviations(pool.rating, what_if.believed(pool, current), question.teams)
        dealt = even_teams(question.players, deviation, question.teams)
        sides = [tuple(question.players[i] for i in members) for members in dealt]
    starts = bounds(np.array([len(side) for side in sides], np.int64))
    names = [playing[player] for side in sides for player in side]
    beliefs = what_if.believed(pool, names)
    mu, sigma, rounds = (column.tolist() for column in beliefs)
    found = of_round(
        pool.rating, starts, np.ones(len(names)), beliefs, question.variance_factor,
        shift_of_sides(pool.rating, question.seats),
    )  # fmt: skip
    rating = pool.rule.rating(beliefs.mu, beliefs.sigma).tolist()
    players = [
        Player(player, *row)
        for player, *row in zip(chain(*sides), mu, sigma, rating, rounds, strict=True)
    ]
    chances = zip(
        pairwise(starts.tolist()), found.win.tolist(), found.expected_rank.tolist(), question.seats,
        strict=True,
    )  # fmt: skip
    answer = Answer(
        known.ladder,
        [Side(players[first:end], win, rank, seat) for (first, end), win, rank, seat in chances],
        found.draw, found.quality, found.pairwise.tolist(),
    )  # fmt: skip
    if question.ranks is not None:
        answer.changes = list(_changes(known, sides, question))
    return answer


def _changes(
    known: what_if.KnownBeliefs, sides: Sequence[tuple[str, ...]], question: Question
) -> Iterator[Change]:
    """Yield the new ratings of the players whose ratings the result would change. Raises Failed for
    an invalid round."""
    standings = [
        Entry(
            player=side[0] if len(side) == 1 else None, team=side if len(side) > 1 else None,
            rank=rank, dnf=rank is None, seat=seat, score=score,
        )
        for side, rank, seat, score in zip(
            sides, question.ranks or (), question.seats, question.scores, strict=True
        )
    ]  # fmt: skip
    try:
        rated = what_if.rate_future_round(known, standings)
    except Invalid as rejection:
        raise Failed(f"--ranks: {rejection.code}: {rejection}") from None
    if rated is None:
        return
    for player, row in zip(rated.rounds.names.texts(), numbers_of(rated).tolist(), strict=True):
        mu, sigma, _, _, _, rating, previous = row
        yield Change(player, mu, sigma, rating, previous)


# --- the question --------------------------------------------------------------------------------


def question_of(
    sides: Sequence[str], teams: int | None, ranks: str | None, variance_factor: float,
    seats: str | None = None, scores: str | None = None,
) -> Question:  # fmt: skip
    """The question in these arguments of the command. Raises BadConfiguration."""
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
    if scores is not None and ranks is None:
        raise BadConfiguration("--scores is for --ranks: add the ranks that the scores led to")
    return Question(
        found, teams, _ranks(ranks, count), variance_factor, _seats(seats, count),
        _scores(scores, count),
    )  # fmt: skip


def _side(place: str, text: str) -> tuple[str, ...]:
    """The players of a side: ids with commas between, or a JSON list. Raises BadConfiguration."""
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


def _seats(text: str | None, sides: int) -> list[str | None]:
    if text is None:
        return [None] * sides
    words = text.split(",")
    if len(words) != sides:
        raise BadConfiguration(f"--seats {text}: {len(words)} for {sides} sides: give one for each")
    for word in words:
        if not is_seat(word):
            raise BadConfiguration(
                f"--seats {text}: {word!r} is no name of a seat: {SEAT_CURE}, or {NO_SEAT} for none"
            )
    return [None if word == NO_SEAT else word for word in words]


def _scores(text: str | None, sides: int) -> list[float | None]:
    if text is None:
        return [None] * sides
    words = text.split(",")
    if len(words) != sides:
        raise BadConfiguration(
            f"--scores {text}: {len(words)} for {sides} sides: give one for each"
        )
    for word in words:
        if word != NO_SCORE and not SCORE.fullmatch(word):
            raise BadConfiguration(
                f"--scores {text}: {word!r} is no score: give numbers such as 4 or -0.5, or "
                f"{NO_SCORE} for none"
            )
    return [None if word == NO_SCORE else float(word) for word in words]
