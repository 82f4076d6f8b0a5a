"""What a ladder answers: the result of a round or a file, beliefs, leaderboards, predictions.

Columns are named as the fields of the event `rating-changed`, and hold the same numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.library.tables import Columns, Objects

Side = str | Sequence[str]
"""Who plays together: a player, or the members of a team."""

Shares = Sequence[float] | float | None
"""The part of the round that each member of a side played, in (0, 1]; None: all of it."""

Times = npt.NDArray[np.datetime64]
"""(n,) in UTC, of whole seconds."""

DID_NOT_FINISH = 0
"""In a column of ranks."""


@dataclass(frozen=True)
class Belief:
    """What is believed of one player."""

    player: str
    mu: float
    """The estimate of the player's skill, in rating points."""
    sigma: float
    """Its uncertainty, in rating points."""
    rating: float
    """The number to show to players."""
    rounds: int
    """How many of the player's rounds count."""
    provisional: bool
    """Whether these are fewer than the ladder's `provisional_rounds`."""
    last_completed_at: str | None
    """When the player's latest round was completed, RFC 3339 in UTC, of whole seconds; None for a
    newcomer."""


@dataclass(frozen=True, eq=False, repr=False)
class RoundResult(Columns):
    """What a round did: a row for each of its P players, in the order in which they were given.

    There are no rows if the round taught nothing: nobody finished, or all tied and the ladder skips
    such rounds.
    """

    round_id: str
    completed_at: str
    player: Objects
    """(P,) ids."""
    side: Ints
    """(P,) the number of the player's side, from 0."""
    rank: Ints
    """(P,) that of the side; 0 if it did not finish."""
    mu: Floats
    """(P,) after the round, in rating points, as all below up to `previous_rating`."""
    sigma: Floats
    """(P,) after the round."""
    previous_mu: Floats
    """(P,) before the round."""
    previous_sigma: Floats
    """(P,) before the round."""
    performance: Floats
    """(P,) how well each player played, on the scale of mu."""
    rating: Floats
    """(P,) the number to show to players, after the round."""
    previous_rating: Floats
    """(P,) the same before the round."""
    rounds: Ints
    """(P,) how many of the player's rounds count, this one included."""
    provisional: Flags
    """(P,) whether these are fewer than the ladder's `provisional_rounds`."""

    @property
    def rating_change(self) -> Floats:
        """(P,) by how much the round moved each rating."""
        return self.rating - self.previous_rating

    @property
    def title(self) -> str:
        """What stands above the table."""
        nothing = "" if len(self) else ", which taught nothing"
        return f"round {self.round_id}, {self.completed_at}{nothing}"

    def _values(self, name: str, column: npt.NDArray[Any]) -> list[Any]:
        found = super()._values(name, column)
        if name == "rank":
            return [None if rank == DID_NOT_FINISH else rank for rank in found]
        return found


@dataclass(frozen=True, eq=False, repr=False)
class Players(Columns):
    """What is believed of N players now."""

    player: Objects
    """(N,) ids."""
    mu: Floats
    """(N,) estimates of skill, in rating points."""
    sigma: Floats
    """(N,) their uncertainties, in rating points."""
    rating: Floats
    """(N,) the numbers to show to players."""
    rounds: Ints
    """(N,) how many of the player's rounds count."""
    provisional: Flags
    """(N,) whether these are fewer than the ladder's `provisional_rounds`."""
    last_completed_at: Times
    """(N,) when the player's latest round was completed."""

    @property
    def title(self) -> str:
        """What stands above the table."""
        return f"{len(self):,} player{'' if len(self) == 1 else 's'}"


@dataclass(frozen=True, eq=False, repr=False)
class Leaderboard(Players):
    """The best N players by rating; who has the same rating has the same rank."""

    rank: Ints
    """(N,) from 1. After players who share a rank, as many numbers are left out."""

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name, the rank first."""
        return {"rank": self.rank, **super().columns()}


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Columns):
    """What to expect of a round with S sides."""

    players: Objects
    """(S,) the players of each side, tuples of ids."""
    win: Floats
    """(S,) the probability to be better than all others. With `draw` they add up to 1."""
    expected_rank: Floats
    """(S,) the mean rank, from 1. Of sides that draw, each takes the mean of their ranks."""
    draw: float
    """The probability that nobody is better than all others: 0, but on ladders by TrueSkill."""
    pairwise: Floats
    """(S, S) the probability that the side of the row is better than that of the column; 0 on the
    diagonal."""
    quality: float
    """How even the round is: 1 where all sides are equally likely to win, 0 where the winner is
    certain. It is the entropy of the winner, in parts of that of an even round."""

    DECIMALS: ClassVar[Mapping[str, int]] = {"win": 3, "expected_rank": 2}

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name; the pairs are a table of their own."""
        return {name: column for name, column in super().columns().items() if name != "pairwise"}

    @property
    def title(self) -> str:
        """What stands above the table."""
        draw = f", draw {self.draw:.3f}" if self.draw > 0.0 else ""
        return f"prediction for {len(self)} sides: quality {self.quality:.2f}{draw}"


class RefusedLine(NamedTuple):
    """A line of a file that was not taken."""

    line: int
    """From 1."""
    code: str
    """One of the error codes of `round-rejected`."""
    message: str
    """With the place of the mistake in the line."""


@dataclass(frozen=True)
class FileResult:
    """What rating a file did."""

    path: str
    ladder: str
    """The ladder of its rounds, by id."""
    rounds: int
    """Valid rounds of this ladder, those that teach nothing included."""
    updates: int
    """Rating changes."""
    corrections: int = 0
    """Accepted corrections, of whatever ladder."""
    other_rounds: int = 0
    """Valid rounds of other ladders, which were passed over."""
    refused: int = 0
    """Lines that were not taken."""
    refusals: tuple[RefusedLine, ...] = field(default=(), repr=False)
    """The first 1,000 of them."""


# --- errors ---


class InvalidRound(ValueError):
    """A round that cannot be rated. The text is one line that begins with the place in the
    arguments. Nothing was changed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)  # both, so that it can be sent to another process
        self.code = code
        """One of the error codes of `round-rejected`."""

    def __str__(self) -> str:
        return str(self.args[1])


class OtherLadder(ValueError):
    """The rounds of a file are of another ladder, or of several. Nothing was changed."""
