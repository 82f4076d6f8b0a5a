"""The results of a ladder's methods: of a round or a file, beliefs, leaderboards, predictions.

Columns have the names of the fields of the event `rating-changed`, and hold the same numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.contract.events import shown
from stream_rater.library.tables import Columns, Objects, html_fields, objects

if TYPE_CHECKING:
    from stream_rater.evaluation.measures import Evaluation

Side = str | Sequence[str]
"""A side of a round: the id of a player, or the ids of a team's members."""
Shares = Sequence[float] | float | None
"""The part of the round that each member of a side played, in (0, 1]; None: the whole round."""
Times = npt.NDArray[np.datetime64]
"""(n,) times in UTC, in whole seconds."""
DID_NOT_FINISH = 0
"""The value in a column of ranks for a side that did not finish."""


@dataclass(frozen=True)
class Belief:
    """The belief about one player."""

    player: str
    mu: float
    """The estimate of the player's skill, in rating points."""
    sigma: float
    """The uncertainty of the estimate, in rating points."""
    rating: float
    """The rating to show to players."""
    rounds: int
    """The number of the player's rounds that count."""
    provisional: bool
    """Whether `rounds` is less than the ladder's `provisional_rounds`."""
    last_completed_at: str | None
    """The time at which the player's latest round was completed, RFC 3339 in UTC, in whole seconds;
    None for a newcomer."""

    def _repr_html_(self) -> str:
        return html_fields(shown(self.player), {
            "rating": f"{self.rating:.1f}", "mu": f"{self.mu:.1f}", "sigma": f"{self.sigma:.1f}",
            "rounds": f"{self.rounds:,}", "provisional": str(self.provisional),
            "last_completed_at": self.last_completed_at or "–",
        })  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class RatedRows(Columns):
    """What rounds changed: n rows, each of a player in a round. `RoundResult` has those of a round,
    and `History` those of a player."""

    rank: Ints
    """(n,) the rank of the player's side; 0 if the side did not finish."""
    mu: Floats
    """(n,) the estimate of skill after the round, in rating points."""
    sigma: Floats
    """(n,) the uncertainty of mu after the round, in rating points."""
    previous_mu: Floats
    """(n,) mu before the round, in rating points."""
    previous_sigma: Floats
    """(n,) sigma before the round, in rating points."""
    performance: Floats
    """(n,) the estimated performance of the player in the round, on the scale of mu."""
    rating: Floats
    """(n,) the rating to show to players, after the round, in rating points."""
    previous_rating: Floats
    """(n,) the rating to show before the round, in rating points."""
    rounds: Ints
    """(n,) the number of the player's rounds that count, this one included."""
    provisional: Flags
    """(n,) whether `rounds` is less than the ladder's `provisional_rounds`."""

    ABSENT: ClassVar[Mapping[str, int]] = {"rank": DID_NOT_FINISH}


@dataclass(frozen=True, eq=False, repr=False)
class RoundResult(RatedRows):
    """The result of a round: a row for each of its P players, in the order of the arguments.

    There are no rows if the round is not informative: nobody finished, or all sides tied and the
    ladder skips such rounds.
    """

    round_id: str
    completed_at: str
    player: Objects
    """(P,) the ids of the players."""
    side: Ints
    """(P,) the number of the player's side, from 0."""

    LEADING: ClassVar[Sequence[str]] = ("player", "side")

    @property
    def rating_change(self) -> Floats:
        """(P,) the change of each rating in the round, in rating points."""
        return self.rating - self.previous_rating

    @property
    def title(self) -> str:
        nothing = "" if len(self) else ", which taught nothing"
        return f"round {self.round_id}, {self.completed_at}{nothing}"


@dataclass(frozen=True, eq=False, repr=False)
class History(RatedRows):
    """The N rounds of a player that count, in the order in which they were rated, with all
    corrections so far."""

    player: str
    round_id: Objects
    """(N,) the ids of the rounds."""
    completed_at: Times
    """(N,) the time at which each round was completed."""

    LEADING: ClassVar[Sequence[str]] = ("round_id", "completed_at")

    @property
    def title(self) -> str:
        return f"{self.player}: {len(self):,} round{'' if len(self) == 1 else 's'}"


@dataclass(frozen=True, eq=False, repr=False)
class Players(Columns):
    """The present beliefs about N players."""

    player: Objects
    """(N,) the ids of the players."""
    mu: Floats
    """(N,) the estimates of skill, in rating points."""
    sigma: Floats
    """(N,) the uncertainties of these estimates, in rating points."""
    rating: Floats
    """(N,) the ratings to show to players."""
    rounds: Ints
    """(N,) the number of the player's rounds that count."""
    provisional: Flags
    """(N,) whether `rounds` is less than the ladder's `provisional_rounds`."""
    last_completed_at: Times
    """(N,) the time at which the player's latest round was completed."""

    @property
    def title(self) -> str:
        return f"{len(self):,} player{'' if len(self) == 1 else 's'}"


@dataclass(frozen=True, eq=False, repr=False)
class Leaderboard(Players):
    """The best N players by rating. Players with the same rating have the same rank."""

    rank: Ints
    """(N,) the rank of each player, from 1. If k players share a rank, the next k - 1 ranks are
    left out."""
    percentile: Floats
    """(N,) the number of other players of the ladder who are not better, in per cent of all
    players. Unlike ratings, it can be compared over years."""

    LEADING: ClassVar[Sequence[str]] = ("rank",)


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Columns):
    """The prediction for a round with S sides."""

    players: Objects
    """(S,) the players of each side, as tuples of ids."""
    win: Floats
    """(S,) the probability of each side to be better than all others. Together with `draw` they add
    up to 1."""
    expected_rank: Floats
    """(S,) the mean rank of each side, from 1. Sides that draw share the mean of their ranks."""
    draw: float
    """The probability that no side is better than all others. It is 0 except on ladders by
    TrueSkill."""
    pairwise: Floats
    """(S, S) the probability that the side of the row is better than that of the column; 0 on the
    diagonal."""
    raw: Floats
    """(S,) `win` by the model as it is, without a factor."""
    variance_factor: float
    """The factor by which the variance of each side's performance was multiplied."""
    learned_from: int
    """The number of past rounds from which the factor was learned; 0 if it was not learned."""
    quality: float
    """A measure of how even the round is: 1 if all sides are equally likely to win, 0 if the winner
    is certain. It is the entropy of the winner, divided by that of an even round."""

    DECIMALS: ClassVar[Mapping[str, int]] = {"win": 3, "expected_rank": 2, "raw": 3}

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name, without `pairwise`, which is a table of its own."""
        return {name: column for name, column in super().columns().items() if name != "pairwise"}

    @property
    def title(self) -> str:
        draw = f", draw {self.draw:.3f}" if self.draw > 0.0 else ""
        by = f", calibrated by {self.learned_from:,} rounds" if self.learned_from else ""
        return f"prediction for {len(self)} sides: quality {self.quality:.2f}{draw}{by}"


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Columns):
    """How often sides won, for B bins of sides with a similar probability to win. Each side was
    predicted by the ratings before its round."""

    low: Floats
    """(B,) the low edge of each bin of probability."""
    high: Floats
    """(B,) the high edge of each bin."""
    sides: Ints
    """(B,) the number of sides in the bin."""
    predicted: Floats
    """(B,) the mean of the sides' predicted probabilities to win."""
    won: Floats
    """(B,) the share of the sides that won."""
    won_low: Floats
    """(B,) the low end of Wilson's 95 % interval of `won`, as if the sides were independent."""
    won_high: Floats
    """(B,) the high end of that interval."""

    DECIMALS: ClassVar[Mapping[str, int]] = {
        "low": 2, "high": 2, "predicted": 3, "won": 3, "won_low": 3, "won_high": 3,
    }  # fmt: skip

    @property
    def title(self) -> str:
        return f"{self.sides.sum():,} sides by their probability to win"


class RefusedLine(NamedTuple):
    """A line of a file that was rejected."""

    line: int
    """The number of the line, from 1."""
    code: str
    """One of the error codes of `round-rejected`."""
    message: str
    """The mistake, with its place in the line."""


@dataclass(frozen=True, eq=False, repr=False)
class RefusedLines(Columns):
    """The first N rejected lines of a file, as a table."""

    line: Ints
    """(N,) the numbers of the lines, from 1."""
    code: Objects
    """(N,) the error codes of `round-rejected`."""
    message: Objects
    """(N,) the mistakes, each with its place in the line."""

    @property
    def title(self) -> str:
        return "rejected lines"


@dataclass(frozen=True)
class FileResult:
    """The result of rating a file."""

    path: str
    ladder: str
    """The id of the ladder whose rounds were rated."""
    rounds: int
    """The number of valid rounds of this ladder, including those that are not informative."""
    updates: int
    """The number of rating changes."""
    corrections: int = 0
    """The number of accepted corrections, of all ladders."""
    other_rounds: int = 0
    """The number of valid rounds of other ladders, which were skipped."""
    refused: int = 0
    """The number of rejected lines."""
    refusals: tuple[RefusedLine, ...] = field(default=(), repr=False)
    """The first 1,000 rejected lines."""
    seeds: int = 0
    """The number of accepted seeds and resets of this ladder."""
    readings: tuple[str, ...] = field(default=(), repr=False)
    """How a table was read: its columns, and a line for each whose cells could be read
    otherwise."""

    @property
    def refused_lines(self) -> RefusedLines:
        """`refusals` as a table."""
        return RefusedLines(
            line=np.array([each.line for each in self.refusals], np.int64),
            code=objects([each.code for each in self.refusals]),
            message=objects([each.message for each in self.refusals]),
        )

    def _repr_html_(self) -> str:
        names = ("rounds", "updates", "corrections", "other_rounds", "refused")
        counts = {name: f"{getattr(self, name):,}" for name in names}
        table = html_fields(shown(self.path), {"ladder": shown(self.ladder), **counts})
        return table + (self.refused_lines._repr_html_() if self.refusals else "")


@dataclass(frozen=True)
class SeedResult:
    """The result of seeding a ladder."""

    ladder: str
    """The id of the ladder."""
    players: int
    """The number of valid players in the table."""
    begun: int
    """The number of players who have a rating by it. The others have a round or a seed before
    it."""
    cut: int
    """The number of valid players whose sigma was cut to the initial one of the ladder."""
    refused: int = 0
    """The number of invalid rows, which were left out."""
    refusals: tuple[RefusedLine, ...] = field(default=(), repr=False)
    """The first 1,000 invalid rows."""


@dataclass(frozen=True, eq=False, repr=False)
class Tuning(Columns):
    """Parameters that a search found for a ladder, and what they gain: a row for each of M measures
    over the rounds that the search has not seen."""

    system: str
    """The rating system of `parameters`."""
    parameters: Mapping[str, Any]
    """The parameters that were found, as `Ladder(system, **parameters)` takes them; the ladder's
    own if those are worse, or if no difference is shown and they do no better by the metric."""
    verdict: str
    """`better on rounds it had not seen: adopt it`, `no difference on rounds it had not seen`, or
    `worse on rounds it had not seen: keep what you have`."""
    tuned_rounds: int
    """The number of rounds that the search has seen, the first ones of the ladder."""
    compared_rounds: int
    """The number of the other rounds."""
    at_ends: tuple[str, ...]
    """The parameters that ended at an end of their range."""
    measure: Objects
    """(M,) the names of the measures: `log_loss`, of which less is better, and `pair_inversion`,
    the per cent of pairs in the right order (`pair_inversion_all` if nobody has played 5 rounds).
    """
    now: Floats
    """(M,) the measure by the ladder's own parameters."""
    tuned: Floats
    """(M,) the measure by the parameters that were found."""
    difference: Floats
    """(M,) the mean of `tuned` minus `now` over the rounds."""
    low: Floats
    """(M,) the lower end of its 95 % interval, by a paired bootstrap over rounds."""
    high: Floats
    """(M,) the upper end of that interval."""

    DECIMALS: ClassVar[Mapping[str, int]] = dict.fromkeys(
        ("now", "tuned", "difference", "low", "high"), 4
    )

    @property
    def title(self) -> str:
        return f"{self.system}: {self.verdict}"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Columns):
    """The comparison of C configurations on the same rounds: a row for each."""

    evaluations: "tuple[Evaluation, ...]"
    """By configuration all measures. All but the first have `differences` from the first one, by
    measure, with `mean`, `low` and `high` of the 95 % interval, by a paired bootstrap over
    rounds."""
    refused: int
    """The number of invalid rounds or rows, which were left out."""
    parameters: "tuple[Mapping[str, Any], ...]"
    """By configuration the parameters that are no defaults."""
    config: Objects
    """(C,) the names of the configurations."""
    system: Objects
    """(C,) the names of their systems."""
    log_loss: Floats
    """(C,) as in `Evaluation`, like the columns below; NaN without a value. Less is better."""
    difference: Floats
    """(C,) the log loss minus that of the first configuration, for which it is NaN."""
    low: Floats
    """(C,) the lower end of the 95 % interval of this difference."""
    high: Floats
    """(C,) the upper end of that interval."""
    brier: Floats
    """(C,) less is better."""
    pair_inversion: Floats
    """(C,) in %; more is better."""
    kendall_tau: Floats
    """(C,) less is better."""
    rounds_scored: Ints
    """(C,) the number of rounds that are scored, the same for all."""

    DECIMALS: ClassVar[Mapping[str, int]] = {
        "log_loss": 4, "brier": 4, "pair_inversion": 2, "kendall_tau": 4, "difference": 4, "low": 4,
        "high": 4,
    }  # fmt: skip


# --- errors ---


class InvalidRound(ValueError):
    """A round cannot be rated. The text is one line that begins with the place in the arguments.
    The ladder has not changed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)  # both, so that it can be sent to another process
        self.code = code
        """One of the error codes of `round-rejected`."""

    def __str__(self) -> str:
        return str(self.args[1])


class OtherLadder(ValueError):
    """The rounds of a file are of another ladder, or of several. The ladder has not changed."""
