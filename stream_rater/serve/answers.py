"""What the API takes and gives, as types; the OpenAPI document is made of them.

Numbers of a player are those of the newest event, bit for bit.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from stream_rater.contract.events import MAX_ID_BYTES, MAX_RANK
from stream_rater.rating.parameters import RatingConfig

MOST_PLAYERS = 1000
"""Ids in one lookup, and players in one prediction."""
MOST_PAIRED = 50
"""Sides of which each pair is told."""
MOST_BALANCED = 100
"""Players of whom even teams are made."""
MOST_ROWS = 1000
"""Rows of one page."""
MOST_BODY_BYTES = 512 * 1024
"""Of a request: 1,000 ids of 128 bytes fit, however they are escaped."""

PlayerId = Annotated[str, Meta(min_length=1, max_length=MAX_ID_BYTES, description="Id of a player")]


class Answer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is given."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is taken."""


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
    """Who has a round that counts."""
    listed: int
    """Who of them is not provisional, and stands on the leaderboard."""
    season: int | None
    offset: int | None
    """In `round-completed`, of the last round or correction that changed a rating."""
    completed_at: str | None
    rating: RatingConfig
    """By what it rates, as in a ladders file."""
    distribution: list[Bin]
    """Of the displayed ratings of who is listed."""


# --- players ---


class PlayerAnswer(Answer, frozen=True):
    """A player, or what is believed of somebody who has not played."""

    player: str
    mu: float
    sigma: float
    rating: float
    """The number to show to players."""
    rounds: int
    """0: a newcomer."""
    provisional: bool
    completed_at: str | None
    """Of the last round."""
    offset: int | None
    """In `round-completed`, of what changed the player last."""
    season: int | None
    """The ladder's season when the player was told last: a later season is drawn with the next
    event."""


class RankedPlayer(PlayerAnswer, frozen=True, kw_only=True):
    """A player with rank."""

    rank: int | None
    """1 is the best; players of equal rating share a rank. Null: not listed."""
    listed: int
    """How many are listed."""
    percentile: float | None
    """The part, in per cent, of those listed whose rank is worse."""


class Lookup(Question, frozen=True, kw_only=True):
    """Whose ratings to give."""

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
    """The part of the round that each will play; without it, all of it."""


class PredictQuestion(Question, frozen=True, kw_only=True):
    """Who would play a round."""

    sides: Annotated[list[SideQuestion], Meta(min_length=2, max_length=MOST_PLAYERS)]
    variance_factor: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0
    """Multiplies the variance of every side's performance: more than 1 where predictions are too
    sure."""


class BalanceQuestion(Question, frozen=True, kw_only=True):
    """Who is to play in even teams."""

    players: Annotated[list[PlayerId], Meta(min_length=2, max_length=MOST_BALANCED)]
    teams: Annotated[int, Meta(ge=2, le=MOST_BALANCED)] = 2


class SideAnswer(Answer, frozen=True, kw_only=True):
    """What to expect of a side."""

    players: list[str]
    win: float
    """The probability that it is better than all others."""
    expected_rank: float
    """Of sides that draw, each takes the mean of their ranks."""


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
    """Of each side; null: it did not finish."""
    weight: Annotated[float, Meta(gt=0.0, le=1000.0)] = 1.0
    performance_ceiling: float | None = None
    completed_at: str | None = None
    """When the round would be completed (RFC 3339); without it, now."""


class ForeseenAnswer(Answer, frozen=True, kw_only=True):
    """What a result would change of a player."""

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
    """With this one."""
    provisional: bool


class WhatIfAnswer(Answer, frozen=True, kw_only=True):
    """What a result would change; nobody, if it would teach nothing."""

    changes: list[ForeseenAnswer]


class FactorAnswer(Answer, frozen=True, kw_only=True):
    """A part of what is believed of a player."""

    at: float
    """Where it pulls to: a performance, or the center of the Gaussian."""
    weight: float
    """Its part of the weight of all, from 0 to 1."""
    pull: float
    """By how many points it moves the rating, to first order. All pulls add up to 0: that is what
    makes mu the rating."""
    rounds: list[str]
    """The round that it is the performance of, as far as the player's history reaches back."""


class ExplainAnswer(Answer, frozen=True, kw_only=True):
    """Why a player is believed to be so strong."""

    player: str
    mu: float
    sigma: float
    rating: float
    rounds: int
    offset: int
    """In `round-completed`, of what changed the player last."""
    gaussian: FactorAnswer
    """What is known from the start, and from rounds whose performances are not kept apart."""
    performances: list[FactorAnswer]
    """Of rounds, or of several that are kept as one; the heaviest first. Systems that keep mu and
    sigma alone have none."""
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
    """What was wrong, where, and the cure."""
    place: str | None = None
    """Where in the request, such as `body.players[3]` or `query.limit`."""
