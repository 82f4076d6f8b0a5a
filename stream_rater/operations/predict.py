"""`stream-rater predict`: predicts how likely sides are to win a round, and which ratings a result
would change. The command writes nothing. Only `from_redis` needs the packages of the service."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stream_rater.columns.ranges import bounds
from stream_rater.config.errors import BadConfiguration, Failed, named_failures
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.library.messages import Sides, standings_of
from stream_rater.operations.input_file import RoundsFile, file_failures
from stream_rater.operations.rate import rate_file
from stream_rater.rating.balance import even_teams
from stream_rater.rating.seats import SEAT_CURE, is_seat
from stream_rater.rating.wins import MODEL, VarianceFactor, deviations, shift_of_sides
from stream_rater.replay import what_if
from stream_rater.replay.edits import NO_EDITS
from stream_rater.replay.rating_changes import numbers_of
from stream_rater.rounds.validation import Invalid, id_mistake
from stream_rater.runtime.progress import unknown_ladder
from stream_rater.tables.reading import Reading

NO_VALUE = "-"  # The word for a side that did not finish, or has no seat or score.


class RoundQuestion(NamedTuple):
    """A question about a round. Each list has one value for each side."""

    sides: list[tuple[str, ...]]  # The players of each side.
    teams: int | None  # The number of even teams to form; None: the sides are given.
    ranks: list[int | None] | None  # None without a result, or for a side that did not finish.
    variance_factor: float | None
    """The factor of the variance of a side's performance; None: the learned one."""
    seats: list[str | None]
    scores: list[float | None]

    @property
    def players(self) -> list[str]:
        """The players of all sides, in their order."""
        return [player for side in self.sides for player in side]


class PlayerNow(msgspec.Struct):
    """A player's current ratings, as `--format json` writes them."""

    player: str
    mu: float
    sigma: float
    rating: float
    rounds: int


class PredictedSide(msgspec.Struct, omit_defaults=True):
    """A side, its probability to win, its mean rank, and its seat if it has one."""

    players: list[PlayerNow]
    win: float
    expected_rank: float
    seat: str | None = None


class PredictedChange(msgspec.Struct):
    """The ratings of a player after the result in the question."""

    player: str
    mu: float
    sigma: float
    rating: float
    previous_rating: float


class RoundPrediction(msgspec.Struct):
    """A prediction, as `--format json` writes it."""

    ladder: str
    sides: list[PredictedSide]
    draw: float
    quality: float
    pairwise: list[list[float]]
    variance_factor: float
    learned_from: int  # The number of rounds from which it was learned; 0: it was not.
    changes: list[PredictedChange] | None = None  # None if the question has no result.


def from_file(
    question: RoundQuestion, path: Path, ladders: Ladders, ladder: str | None, reading: Reading
) -> tuple[RoundPrediction, RoundsFile]:  # fmt: skip
    """Answer by the ratings after the rounds of a file. `ladder`: None if it has only one. Returns
    the file, too, to `conclude`. Raises BadConfiguration or Failed."""
    with file_failures():
        rated = rate_file(path, ladders, reading=reading)
    pools = rated.replay.pools
    if ladder is None:
        if len(pools) > 1:
            names = ", ".join(sorted(pools))
            raise BadConfiguration(f"{path}: it has the ladders {names}: name one by --ladder")
        ladder = next(iter(pools), None)
    if ladder not in pools:
        rated.file.conclude()
        raise Failed(f"{path}: {unknown_ladder(ladder or '', list(pools))}")
    pool = pools[ladder]
    edits = rated.verdicts.of(ladder) if rated.verdicts else NO_EDITS
    time_s = int(pool.headers(np.arange(len(pool)))["time"].max(initial=0))
    known = what_if.KnownBeliefs(ladder, pool, edits, time_s)
    return _answer(question, known, rated.learned[ladder].now), rated.file


def from_redis(question: RoundQuestion, settings: Settings, ladder: str) -> RoundPrediction:
    """Answer by the ratings of a place. Raises BadConfiguration if the ladders file is not that of
    the workers, and Failed if there are no ratings, if they are not up to date, or if a player was
    removed."""
    from stream_rater import places
    from stream_rater.places import live_beliefs

    with named_failures(), places.opened(settings) as place:
        try:
            beliefs = live_beliefs.LiveBeliefs(places.ladders_of(settings), place)
            known = beliefs.of(ladder, question.players)
        except live_beliefs.UnratedLadder as error:
            raise Failed(unknown_ladder(ladder, error.rated)) from None
        except live_beliefs.LaddersDiffer as error:
            raise BadConfiguration(f"{error}: nothing was predicted") from None
        except (live_beliefs.StaleBeliefs, what_if.RemovedPlayer) as error:
            raise Failed(str(error)) from None
    return _answer(question, known)


def _answer(
    question: RoundQuestion, known: what_if.KnownBeliefs, learned: VarianceFactor = MODEL
) -> RoundPrediction:
    """The prediction. Raises Failed for a round that cannot be played."""
    sides, pool, factor = question.sides, known.pool, question.variance_factor
    by = learned if factor is None else VarianceFactor(factor)
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
    shift = shift_of_sides(pool.rating, question.seats)
    forecast = by.forecast(pool.rating, starts, np.ones(len(names)), beliefs, shift)
    rating = pool.rule.rating(beliefs.mu, beliefs.sigma).tolist()
    mu, sigma, rounds = (column.tolist() for column in beliefs)
    players = list(map(PlayerNow, chain(*sides), mu, sigma, rating, rounds))
    members = [players[first:end] for first, end in pairwise(starts.tolist())]
    ranks = forecast.expected_rank.tolist()
    answer = RoundPrediction(
        known.ladder,
        list(map(PredictedSide, members, forecast.win.tolist(), ranks, question.seats)),
        forecast.draw, forecast.quality, forecast.pairwise.tolist(), by.factor, by.rounds,
    )  # fmt: skip
    if question.ranks is not None:
        answer.changes = list(_changes(known, sides, question))
    return answer


def _changes(
    known: what_if.KnownBeliefs, sides: Sides, question: RoundQuestion
) -> Iterator[PredictedChange]:
    """Yield the new ratings of players whom the result would change. Raises Failed."""
    standings = standings_of(sides, question.ranks, None, question.seats, question.scores)
    try:
        rated = what_if.rate_future_round(known, standings)
    except Invalid as rejection:
        raise Failed(f"--ranks: {rejection.code}: {rejection}") from None
    if rated is None:
        return
    for player, row in zip(rated.rounds.names.texts(), numbers_of(rated).tolist(), strict=True):
        mu, sigma, _, _, _, rating, previous = row
        yield PredictedChange(player, mu, sigma, rating, previous)


# --- the question --------------------------------------------------------------------------------


def question_of(
    sides: Sequence[str], *, teams: int | None, ranks: str | None, factor: float | None,
    seats: str | None = None, scores: str | None = None,
) -> RoundQuestion:  # fmt: skip
    """The question in these arguments of the command. Raises BadConfiguration."""
    given = [_side(f"side {i}", text) for i, text in enumerate(sides, 1)]
    places: dict[str, int] = {}
    for i, player in ((i, player) for i, side in enumerate(given, 1) for player in side):
        if player in places:
            where = f"side {i}" if places[player] == i else f"sides {places[player]} and {i}"
            raise BadConfiguration(f"{where}: player {player!r} stands there twice: name each once")
        places[player] = i
    if teams is not None and not 2 <= teams <= len(places):
        raise BadConfiguration(
            f"--teams {teams}: {len(places)} players can be dealt into 2 to {len(places)} teams"
        )
    count = teams or len(given)
    if count < 2:
        raise BadConfiguration(
            "one side alone: name two at least, as in ann,bob cy,dee, or deal it by --teams 2"
        )
    if scores is not None and ranks is None:
        raise BadConfiguration("--scores is for --ranks: add the ranks that the scores led to")
    return RoundQuestion(
        given, teams, None if ranks is None else _RANKS.of(ranks, count), factor,
        [None] * count if seats is None else _SEATS.of(seats, count),
        [None] * count if scores is None else _SCORES.of(scores, count),
    )  # fmt: skip


def _side(place: str, text: str) -> tuple[str, ...]:
    """The players of a side: ids with commas between, or a JSON list. Raises BadConfiguration."""
    if text.startswith("["):
        try:
            players = msgspec.json.decode(text, type=list[str])
        except msgspec.DecodeError:
            example = '["ann", "bob"]'
            raise BadConfiguration(f"{place}: {text}: no JSON list such as {example}") from None
    else:
        players = text.split(",")
    for player in players or [""]:
        if not player:
            cure = "write ids as in ann,bob cy,dee"
            raise BadConfiguration(f"{place}: {text!r}: an empty id: {cure}")
        if mistake := id_mistake(player):
            raise BadConfiguration(f"{place}: {text!r}: player {player!r}: {mistake}")
    return tuple(players)


class _Words(NamedTuple):
    """An option whose value is a list of words, one for each side."""

    option: str
    is_valid: Callable[[str], object]
    convert: Callable[[str], Any]
    wanted: str  # The end of the error's text: what a word must be.

    def of(self, text: str, sides: int) -> list[Any]:
        """The values in the text of the option; None for NO_VALUE. Raises BadConfiguration."""
        words = text.split(",")
        if len(words) != sides:
            raise BadConfiguration(
                f"{self.option} {text}: {len(words)} for {sides} sides: give one for each"
            )
        for word in words:
            if word != NO_VALUE and not self.is_valid(word):
                raise BadConfiguration(f"{self.option} {text}: {word!r} is no {self.wanted}")
        return [None if word == NO_VALUE else self.convert(word) for word in words]


_RANKS = _Words(
    "--ranks", re.compile("[1-9][0-9]{0,8}", re.ASCII).fullmatch, int,
    f"rank: give whole numbers from 1 to 999999999, or {NO_VALUE} for who did not finish",
)  # fmt: skip
_SEATS = _Words("--seats", is_seat, str, f"name of a seat: {SEAT_CURE}, or {NO_VALUE} for none")
_SCORES = _Words(
    "--scores", re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII).fullmatch, float,
    f"score: give numbers such as 4 or -0.5, or {NO_VALUE} for none",
)  # fmt: skip
