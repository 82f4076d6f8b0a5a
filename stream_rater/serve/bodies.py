"""The bodies of requests and answers, as types; the OpenAPI document is made of them.

The numbers of a player are those of the newest event, bit for bit.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from stream_rater.contract.events import MAX_ID_BYTES, MAX_RANK
from stream_rater.rating.parameters import RatingConfig

MOST_PLAYERS = 1000
"""The number of ids in a lookup, and of players in a prediction."""
MOST_PAIRED = 50
"""The number of sides up to which an answer has every pair."""
MOST_BALANCED = 100
"""The number of players of whom even teams are made."""
MOST_ROWS = 1000
"""The number of rows of a page."""
MOST_BODY_BYTES = 512 * 1024
"""The size of a request. 1,000 ids of 128 bytes fit, even if all characters outside ASCII are
escaped."""

# `max_length` counts characters. A longer id in bytes passes, but no player has it.
PlayerId = Annotated[str, Meta(min_length=1, max_length=MAX_ID_BYTES, description="Id of a player")]


class Answer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An answer."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request, or a part of it."""


# --- ladders ---


class LadderList(Answer, frozen=True, kw_only=True):
    """All ladders."""

    ladders: list[str]


class Bin(Answer, frozen=True, kw_only=True):
    """A bin of the histogram of displayed ratings."""

    at_least: int
    """Its lower end; the next bin begins at its upper end."""
    below: int
    players: int


class LadderAnswer(Answer, frozen=True, kw_only=True):
    """A ladder."""

    ladder: str
    players: int
    """Players with at least one counted round."""
    listed: int
    """Players on the leaderboard: those who are not provisional."""
    season: int | None
    offset: int | None
    """The offset in `round-completed` of the last round or correction that changed a rating."""
    completed_at: str | None
    rating: RatingConfig
    """The rating parameters, as in a ladders file."""
    distribution: list[Bin]
    """The histogram of the displayed ratings of listed players."""


# --- players ---


class PlayerAnswer(Answer, frozen=True):  # it is made by position: a new field goes to the end
    """A player, or the initial belief about a newcomer."""

    player: str
    mu: float
    sigma: float
    rating: float
    """The number to show to players."""
    rounds: int
    """Counted rounds; 0: a newcomer."""
    provisional: bool
    completed_at: str | None
    """When the last round was completed."""
    offset: int | None
    """The offset in `round-completed` of the last change of the player."""
    season: int | None
    """Season of the player's last event. A newer season takes effect with the next one."""


class RankedPlayer(PlayerAnswer, frozen=True, kw_only=True):
    """A player with rank."""

    rank: int | None
    """1 is the best; players of equal rating share a rank. Null: not listed."""
    listed: int
    """The number of listed players."""
    percentile: float | None
    """The number of other listed players who are not better, in per cent of all listed players."""


class Lookup(Question, frozen=True, kw_only=True):
    """The players to look up."""

    players: Annotated[list[PlayerId], Meta(min_length=1, max_length=MOST_PLAYERS)]


class LookupAnswer(Answer, frozen=True, kw_only=True):
    """The players in the order of the question."""

    players: list[PlayerAnswer]


class ChangeAnswer(Answer, frozen=True, kw_only=True):
    """What a round or a correction changed."""

    offset: int
    round_id: str
    completed_at: str
    cause: str
    """`round-completed`, or the kind of the correction."""
    rank: int | None
    performance: float | None
    mu: float
    sigma: float
    previous_rating: float
    rating: float
    rounds: int


class HistoryAnswer(Answer, frozen=True, kw_only=True):
    """A player's changes, newest first."""

    player: str
    changes: list[ChangeAnswer]
    next: int | None
    """The next page is `before` this offset; null: no more are kept."""


# --- the leaderboard ---


class Row(Answer, frozen=True, kw_only=True):
    """A row of the leaderboard."""

    rank: int
    player: str
    rating: float


class PageAnswer(Answer, frozen=True, kw_only=True):
    """A page of the leaderboard, as it stood at one instant."""

    rows: list[Row]
    listed: int
    next: str | None
    """The `cursor` of the next page; null: this is the last one."""


# --- predictions ---

Share = Annotated[float, Meta(ge=1e-6, le=1.0)]


Rank = Annotated[int, Meta(ge=1, le=MAX_RANK)]


class SideQuestion(Question, frozen=True, kw_only=True):
    """A player, or the members of a team."""

    players: Annotated[list[PlayerId], Meta(min_length=1, max_length=MOST_PLAYERS)]
    shares: list[Share] | None = None
    """The part of the round that each player will play; without it, the whole round."""


class PredictQuestion(Question, frozen=True, kw_only=True):
    """The sides of a round to predict."""

    sides: Annotated[list[SideQuestion], Meta(min_length=2, max_length=MOST_PLAYERS)]
    variance_factor: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0
    """Multiplies the variance of every side's performance. Use more than 1 if predictions are too
    certain."""


class BalanceQuestion(Question, frozen=True, kw_only=True):
    """The players to divide into even teams."""

    players: Annotated[list[PlayerId], Meta(min_length=2, max_length=MOST_BALANCED)]
    teams: Annotated[int, Meta(ge=2, le=MOST_BALANCED)] = 2


class SideAnswer(Answer, frozen=True, kw_only=True):
    """What to expect of a side."""

    players: list[str]
    win: float
    """The probability that it is better than all others."""
    expected_rank: float
    """The mean rank; sides that draw share the mean of their ranks."""


class PredictAnswer(Answer, frozen=True, kw_only=True):
    """What to expect of a round."""

    sides: list[SideAnswer]
    draw: float
    """The probability that no side is better than all others; 0 on ladders without draws."""
    quality: float
    """1 where all sides are equally likely to win, 0 where the winner is certain."""
    pairwise: list[list[float]] | None
    """The probability that the side of the row is better than that of the column; 0 on the
    diagonal. Null: more than 50 sides."""


# --- by the whole beliefs ---


class WhatIfQuestion(Question, frozen=True, kw_only=True):
    """The result of a round that was not played."""

    sides: Annotated[list[SideQuestion], Meta(min_length=2, max_length=MOST_PLAYERS)]
    ranks: Annotated[list[Rank | None], Meta(min_length=2, max_length=MOST_PLAYERS)]
    """The rank of each side; null: it did not finish."""
    weight: Annotated[float, Meta(gt=0.0, le=1000.0)] = 1.0
    performance_ceiling: float | None = None
    completed_at: str | None = None
    """When the round would be completed (RFC 3339); without it, now."""


class WhatIfChangeAnswer(Answer, frozen=True, kw_only=True):
    """How a result would change a player."""

    player: str
    side: int
    """Its number in the question, from 0."""
    mu: float
    sigma: float
    previous_mu: float
    previous_sigma: float
    performance: float
    rating: float
    previous_rating: float
    rounds: int
    """Counted rounds, with this one."""
    provisional: bool


class WhatIfAnswer(Answer, frozen=True, kw_only=True):
    """The changes that a result would make; none if the round is not informative."""

    changes: list[WhatIfChangeAnswer]


class FactorAnswer(Answer, frozen=True, kw_only=True):
    """A part of what is believed of a player."""

    at: float
    """The rating that it pulls toward: a performance, or the center of the Gaussian."""
    weight: float
    """Its share of the total weight, from 0 to 1."""
    pull: float
    """The points by which it moves the rating, to first order. All pulls add up to 0 at mu."""
    rounds: list[str]
    """The ids of the rounds whose performance it is, as far back as the player's history goes."""


class ExplainAnswer(Answer, frozen=True, kw_only=True):
    """Why a player's rating is what it is."""

    player: str
    mu: float
    sigma: float
    rating: float
    rounds: int
    offset: int
    """The offset in `round-completed` of the last change of the player."""
    gaussian: FactorAnswer
    """The initial belief, and the rounds whose performances are not kept separately."""
    performances: list[FactorAnswer]
    """Performances of single rounds, or of several rounds kept as one, by decreasing weight.
    Systems that keep only mu and sigma have none."""
    in_words: list[str]


# --- errors ---


class Problem(Answer, frozen=True, kw_only=True):
    """What went wrong (RFC 9457)."""

    type: str
    """A reference to the list of codes."""
    title: str
    status: int
    code: str
    detail: str
    """What is wrong, where, and how to correct it."""
    place: str | None = None
    """Where in the request, such as `body.players[3]` or `query.limit`."""
