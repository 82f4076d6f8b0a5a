"""The types of the bodies of requests and answers. The OpenAPI document is made from them, with the
docstrings of the classes as descriptions. The numbers of a player equal those of the player's
newest event, bit for bit."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from stream_rater.config.views import Listing, Rule, Tier
from stream_rater.contract.corrections import KINDS, Correction
from stream_rater.contract.events import MAX_ID_BYTES, MAX_RANK
from stream_rater.contract.seeds import SEEDS, RatingGiven
from stream_rater.rating.seats import MOST_CHARACTERS

MOST_PLAYERS = 1000  # The most ids in a lookup, and the most players in a prediction.
MOST_PAIRED = 50  # The most sides of a round for which an answer has the probability of every pair.
MOST_BALANCED = 100  # The most players to divide into even teams.
MOST_ROWS = 1000  # The most rows of a page.
MOST_FOUND = 50  # The most players whom a search finds, and the most rounds of a page.
MOST_SHOWN = 20  # The most players of a round whom a list of rounds shows.
MOST_DETAILED = 100  # The most rows of a page on which each row has the player's last changes.
MOST_BODY_BYTES = 512 * 1024
"""The most bytes of a request's body: 1,000 ids of 128 bytes fit, even if all are escaped."""

# `max_length` counts characters. A longer id in bytes passes, but no player has it.
PlayerId = Annotated[str, Meta(min_length=1, max_length=MAX_ID_BYTES, description="Id of a player")]


class Answer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The base class of the bodies of answers."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base class of the bodies of requests, and of their parts."""


TierName = str | None | UnsetType

# --- ladders ---


class LadderList(Answer, frozen=True, kw_only=True):
    """The list of all ladders."""

    ladders: list[str]


class Bin(Answer, frozen=True, kw_only=True):
    """A bin of the histogram of displayed ratings."""

    at_least: int  # The bin has the ratings from this one to before `below`.
    below: int
    players: int


class LadderAnswer(Answer, frozen=True, kw_only=True):
    """A ladder: its players, its parameters, and the distribution of its ratings."""

    ladder: str
    players: int  # The number of players with at least one counted round.
    listed: int  # Players on the leaderboard; without views, all who are not provisional.
    season: int | None
    offset: int | None  # The offset of the last round or correction that changed a rating.
    completed_at: str | None
    rating: dict[str, Any]  # The rating parameters, as in a ladders file.
    distribution: list[Bin]  # The histogram of the displayed ratings of listed players.
    listing: Listing  # The rules by which players are listed, as in a ladders file.
    tiers: list[Tier]  # The tiers from the lowest to the highest, as in a ladders file.


# --- players ---


class PlayerAnswer(Answer, frozen=True):  # fields are given by position: add a new one at the end
    """A player, or the initial belief about a newcomer."""

    player: str
    mu: float
    sigma: float
    rating: float  # The displayed rating.
    rounds: int  # The number of counted rounds; 0 for a newcomer.
    provisional: bool
    completed_at: str | None  # The time when the last round was completed; null for a newcomer.
    offset: int | None  # The offset in `round-completed` of the last change of the player.
    season: int | None  # The season of the last event: a newer one shows with the next event.
    tier: TierName = UNSET  # Null if the player is not listed; left out without tiers.
    previous_tier: TierName = UNSET
    """The tier before the last event; null if the player is not listed, or was not listed then. It
    is left out if the ladder has no tiers."""


class Unlisted(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """The first rule that keeps a player off the leaderboard; `unlisted`: the ladders file names
    the player, and there is neither a value nor a bound."""

    rule: Rule
    value: float | None = None  # The rounds, the days since the last round, or today's sigma.
    bound: float | None = (
        None  # The least number of rounds, or the limit of those days or of sigma.
    )


class RankedPlayer(PlayerAnswer, frozen=True, kw_only=True):
    """A player with the player's rank and percentile on the leaderboard."""

    rank: int | None  # The best is 1; equal ratings share a rank; null if not listed.
    listed: int  # The number of listed players.
    percentile: float | None
    """How many other listed players are not better, in per cent of all listed players; null if the
    player is not listed."""
    unlisted: Unlisted | None  # Why the player is not listed; null if the player is listed.


class Lookup(Question, frozen=True, kw_only=True):
    """The players to look up."""

    players: Annotated[list[PlayerId], Meta(min_length=1, max_length=MOST_PLAYERS)]


class LookupAnswer(Answer, frozen=True, kw_only=True):
    """The players in the order of the request."""

    players: list[PlayerAnswer]


class ChangeAnswer(Answer, frozen=True, kw_only=True):
    """The change of a player by a round or by a correction."""

    offset: int
    round_id: str
    completed_at: str
    cause: str  # The cause of the change: `round-completed`, or the kind of the correction.
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
    next: int | None  # The `before` of the next page; null if no older changes are stored.


class Participant(Answer, frozen=True):
    """A player of a past round."""

    player: str
    rank: int | None  # The rank; null for a player who did not finish.
    previous_rating: float
    rating: float


class PastRound(Answer, frozen=True, kw_only=True):
    """A round that was rated, with those of its players whose history still has it."""

    offset: int
    round_id: str
    completed_at: str
    players: list[Participant]  # By rank: at most 20, and the player who was asked for.
    more: bool  # Whether there are more players than those.


class RoundList(Answer, frozen=True, kw_only=True):
    """Rounds, newest first. A correction is no round, so there may be fewer than asked for."""

    rounds: list[PastRound]
    next: int | None  # The `before` of the next page; null if no older changes are stored.


# --- the leaderboard ---


class RecentChange(Answer, frozen=True):
    """One of the last changes of a player."""

    completed_at: str
    rank: int | None  # The rank in the round; null after a correction, or if not finished.
    rating: float


class Row(Answer, frozen=True, kw_only=True):
    """A row of the leaderboard."""

    rank: int
    player: str
    rating: float
    tier: TierName = UNSET  # This and the next one are as in PlayerAnswer.
    previous_tier: TierName = UNSET
    percentile: float | UnsetType = UNSET
    """As in RankedPlayer; left out unless the ladder's listing has `display = "percentile"`."""
    sigma: float | UnsetType = UNSET  # This and the next ones are there if `recent` asks for them.
    rounds: int | UnsetType = UNSET
    recent: list[RecentChange] | UnsetType = UNSET  # The last changes, oldest first.


class PageAnswer(Answer, frozen=True, kw_only=True):
    """A page of the leaderboard, as it stood at one instant."""

    rows: list[Row]
    listed: int
    next: str | None  # The `cursor` of the next page; null if this is the last page.


# --- past seasons ---


class SeasonAnswer(Answer, frozen=True, kw_only=True):
    """A season of a ladder."""

    season: int  # The number of the season; 0 for the time before the first season.
    started_at: str | None  # Null if unknown, and for the time before the first season.
    ended_at: str | None  # When the next season started; null if that is not known.
    players: int | None  # Players with a counted round when it ended; null if unknown.
    listed: int | None  # The number of players in the standings; null if they are not kept.
    standings: Literal["kept", "not-written", "season-runs"]
    """Whether the standings are kept. `not-written`: the season has ended, and the job that keeps
    the standings has not run yet. `season-runs`: the season has not ended."""


class SeasonList(Answer, frozen=True, kw_only=True):
    """The seasons of a ladder, in order."""

    ladder: str
    seasons: list[SeasonAnswer]


class SeasonRow(Answer, frozen=True, kw_only=True):
    """A player in the standings of a season."""

    rank: int
    player: str
    rating: float  # The displayed rating at the end of the season.
    percentile: float  # How many other listed players were not better, in per cent of all.
    tier: str | None  # The tier of the rating, without hysteresis; null if the ladder has no tiers.
    rounds: int  # The number of counted rounds, over all seasons.


class SeasonPageAnswer(Answer, frozen=True, kw_only=True):
    """A page of the standings of a season. They are final: a correction that was applied after the
    season had ended does not change them."""

    season: int
    ended_at: str
    rows: list[SeasonRow]
    listed: int
    next: str | None  # The `cursor` of the next page; null if this is the last page.


# --- predictions ---

Share = Annotated[float, Meta(ge=1e-6, le=1.0)]
Rank = Annotated[int, Meta(ge=1, le=MAX_RANK)]
Seat = Annotated[str, Meta(min_length=1, max_length=MOST_CHARACTERS, pattern="^[ -~]*$")]


class SideQuestion(Question, frozen=True, kw_only=True):
    """A player, or the members of a team."""

    players: Annotated[list[PlayerId], Meta(min_length=1, max_length=MOST_PLAYERS)]
    shares: list[Share] | None = None
    """The part of the round that each player will play, from 1e-6 to 1; None: the whole round."""
    seat: Seat | None = None
    """The place from which the side plays, such as `home`. It counts if the ladder rates it."""


class PredictQuestion(Question, frozen=True, kw_only=True):
    """The sides of a round to predict."""

    sides: Annotated[list[SideQuestion], Meta(min_length=2, max_length=MOST_PLAYERS)]
    variance_factor: Annotated[float, Meta(gt=0.0, le=1e6)] | None = None
    """It multiplies the variance of all performances, in place of the factor that was learned."""


class BalanceQuestion(Question, frozen=True, kw_only=True):
    """The players to divide into even teams."""

    players: Annotated[list[PlayerId], Meta(min_length=2, max_length=MOST_BALANCED)]
    teams: Annotated[int, Meta(ge=2, le=MOST_BALANCED)] = 2
    groups: list[Annotated[list[PlayerId], Meta(min_length=1, max_length=MOST_BALANCED)]] = []
    """Those of these players who stay together, such as friends, as a list for each group."""


class SideAnswer(Answer, frozen=True, kw_only=True):
    """The prediction for one side of a round."""

    players: list[str]
    win: float  # The probability that the side is better than all others.
    expected_rank: float  # The mean of the predicted rank. Sides that draw share a mean rank.


class CalibrationAnswer(Answer, frozen=True, kw_only=True):
    """What was learned from past rounds about how sure predictions should be."""

    rounds: int  # The number of past rounds of the ladder that it was learned from.
    factor: float  # The factor of the variance of all performances. Above 1: less certain.


class PredictAnswer(Answer, frozen=True, kw_only=True):
    """The prediction of a round."""

    sides: list[SideAnswer]
    raw: list[float]  # The sides' probabilities to win without calibration.
    calibrated: bool  # Whether all other probabilities are calibrated.
    calibration: CalibrationAnswer | None  # It is null if they are not.
    draw: float  # The probability that no side is best alone; 0 on ladders without draws.
    quality: float  # From 0 (the winner is certain) to 1 (all are equally likely to win).
    pairwise: list[list[float]] | None
    """The probability that the side of the row is better than that of the column; 0 on the
    diagonal. It is null if there are more than 50 sides."""


# --- questions that need whole beliefs ---


class WhatIfQuestion(Question, frozen=True, kw_only=True):
    """The hypothetical result of a round that was not played."""

    sides: Annotated[list[SideQuestion], Meta(min_length=2, max_length=MOST_PLAYERS)]
    ranks: Annotated[list[Rank | None], Meta(min_length=2, max_length=MOST_PLAYERS)]
    """The rank of each side; null for a side that did not finish."""
    scores: list[float | None] | None = None  # One a side; they count if the ladder uses scores.
    weight: Annotated[float, Meta(gt=0.0, le=1000.0)] = 1.0
    performance_ceiling: float | None = None
    completed_at: str | None = None  # The time of completion (RFC 3339); by default, now.


class WhatIfChangeAnswer(Answer, frozen=True, kw_only=True):
    """The change of a player that a result would make."""

    player: str
    side: int  # The index of the player's side in the request, from 0.
    mu: float
    sigma: float
    previous_mu: float
    previous_sigma: float
    performance: float
    rating: float
    previous_rating: float
    rounds: int  # The number of counted rounds, including this one.
    provisional: bool


class WhatIfAnswer(Answer, frozen=True, kw_only=True):
    """The changes that a result would make. There are none if the round is not informative."""

    changes: list[WhatIfChangeAnswer]


class FactorAnswer(Answer, frozen=True, kw_only=True):
    """One factor of the belief about a player: the Gaussian or a performance."""

    at: float  # What the factor pulls toward: a performance, or the center of the Gaussian.
    weight: float  # The factor's share of the total weight, from 0 to 1.
    pull: float  # By how many points it moves the rating, to first order. At mu, the sum is 0.
    rounds: list[str]
    """The ids of the rounds in the player's history that the performance may come from."""


class ExplainAnswer(Answer, frozen=True, kw_only=True):
    """An explanation of a player's rating by the factors of the belief about the player."""

    player: str
    mu: float
    sigma: float
    rating: float
    rounds: int
    offset: int  # The offset in `round-completed` of the last change of the player.
    gaussian: FactorAnswer  # The initial belief, and rounds without a stored performance.
    performances: list[FactorAnswer]
    """The performances of single rounds, and of several rounds stored as one, by decreasing weight.
    Systems that store only mu and sigma have none."""
    in_words: list[str]


# --- rounds and corrections that clients send ---


class EntryReport(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a round's standings: a player or a team, with a rank or `dnf`."""

    player: PlayerId | None = None
    team: list[PlayerId] | None = None  # The members of a team, instead of `player`.
    shares: list[float] | None = None  # The part of the round that each member played.
    rank: Rank | None = None  # The rank, from 1, the best. Equal ranks are ties.
    dnf: bool = False  # Whether the entry did not finish. Then it needs no rank.
    seat: str | None = None  # The seat, such as `home`: 1 to 8 printable ASCII characters.
    score: float | None = None  # What the entry scored. The rank decides the order.


class RoundReport(msgspec.Struct, frozen=True, kw_only=True):
    """A round, as in the topic `round-completed`. See the list of its fields in the reference."""

    round_id: Annotated[str, Meta(min_length=1, max_length=MAX_ID_BYTES)]  # An id counts once.
    completed_at: str  # The time of completion (RFC 3339, with a zone).
    standings: Annotated[list[EntryReport], Meta(min_length=2)]
    ladder: str | UnsetType = UNSET  # It may be left out if the path names the ladder.
    weight: float = 1.0
    performance_ceiling: float | None = None


def _report(name: str, kind: type[Correction | RatingGiven]) -> type[msgspec.Struct]:
    """The type of the body that sends a correction, seed or reset of this kind. It has the fields
    of `kind`, but the ladder may be left out, because the path names it."""
    ours: dict[str, Any] = {"ladder": str | UnsetType, "standings": list[EntryReport]}
    fields = [
        (each.name, ours.get(each.name, each.type),
         field(name=each.encode_name, default=UNSET if each.name == "ladder" else each.default))
        for each in msgspec.structs.fields(kind)
        if each.name != "event_type"
    ]  # fmt: skip
    return msgspec.defstruct(
        kind.__name__, fields, namespace={"__doc__": kind.__doc__}, kw_only=True,
        tag_field="event_type", tag=name, forbid_unknown_fields=True,
    )  # fmt: skip


_REPORTS = tuple(_report(*each) for each in (KINDS | SEEDS).items())
CorrectionReport: Any = Union[_REPORTS]  # noqa: UP007
"""A correction, a seed or a reset."""


class RoundTaken(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of sending one round."""

    ladder: str | None = None
    round_id: str | None = None  # The ladder and the id; absent if the round does not say them.
    partition: int | None = None  # The place in `round-completed`; absent if it was not valid.
    offset: int | None = None
    status: int
    """The HTTP status that the round would have by itself: 202 if it is stored for good, also if it
    was sent before. It is no verdict yet: ask for the state of the round."""
    code: str | None = None  # The error code of a round that was refused.
    detail: str | None = None
    place: str | None = None  # The place of the mistake in the request.
    warnings: list[str] = []
    """The fields that a round has no meaning for, at most 10; and whether its ladder is new, and
    has nearly the name of another one."""

    def doubted(self, doubts: Mapping[str, str]) -> "RoundTaken":
        """The same, with the warning that is known of its ladder, if the round was taken."""
        if self.status != 202 or not (doubt := doubts.get(self.ladder or "")):
            return self
        return msgspec.structs.replace(self, warnings=[doubt, *self.warnings])


class RoundsTaken(Answer, frozen=True, kw_only=True):
    """The outcomes of sending many rounds, in the order of the request."""

    results: list[RoundTaken]


class CorrectionTaken(Answer, frozen=True, kw_only=True):
    """The place of a correction, seed or reset that is stored for good. It is no verdict yet."""

    ladder: str
    event_type: str
    partition: int
    offset: int


class RoundChange(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """What a round changed of one player."""

    player: str
    rank: int | None = None  # The rank; absent for a player who did not finish.
    performance: float | None = None
    mu: float
    sigma: float
    previous_mu: float
    previous_sigma: float
    rating: float
    previous_rating: float
    rounds: int
    provisional: bool


class RoundStateAnswer(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a round."""

    ladder: str
    round_id: str
    state: Literal["pending", "rated", "rejected", "duplicate", "voided", "amended", "accepted"]
    """`pending` until the workers have decided. `duplicate`: another record with this id was
    rated. `voided`, `amended`: what the newest correction of the round has done. `accepted`: it is
    a correction, a seed or a reset, and not rejected."""
    partition: int
    offset: int  # The place of the record in `round-completed`.
    code: str | None = None  # The error code of a round that the workers rejected.
    detail: str | None = None  # Why it was rejected, with the place of the mistake.
    changes: list[RoundChange]  # For each player whose rating changed, once the round is rated.
    changes_complete: bool
    """Whether `changes` has the change of every player. It is false while the round is pending, and
    if this process cannot know all changes."""
    corrected_at: int | None = None
    """The offset of the newest known correction behind the round, of any round or player of the
    ladder. Since then the round may have other effects than `changes` say."""


# --- errors ---


class Problem(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """An error of a request, in the form of RFC 9457."""

    type: str  # `urn:stream-rater:problem:` with the code behind it.
    title: str
    status: int
    code: str
    detail: str  # A text that says what is wrong and how to correct it.
    place: str | None = None  # The mistake's place, such as `body.players[3]` or `query.limit`.
    partition: int | UnsetType = UNSET  # With `other-content`: the place of the round with this id.
    offset: int | UnsetType = UNSET
