"""`stream_rater.Ladder`: rate rounds in Python, and ask for what is believed.

Light to import: what rates is loaded when the first ladder is made.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from stream_rater.columns import compile_progress
from stream_rater.library.parameters import DEFAULT_SYSTEM, Parameters, rating_of
from stream_rater.library.results import (
    Belief,
    FileResult,
    Leaderboard,
    Players,
    Prediction,
    RoundResult,
    Shares,
    Side,
)

if TYPE_CHECKING:
    from stream_rater.library.rater import Rater
    from stream_rater.rating.parameters import RatingConfig


class Ladder:
    """An independent pool of ratings, in memory.

    Its numbers are those of the service and of `stream-rater rate`, bit for bit. A call that raises
    changes nothing. A ladder is for one thread. It can be copied and pickled: the copy has its log,
    and rates it anew.
    """

    def __init__(self, system: str = DEFAULT_SYSTEM, **parameters: Unpack[Parameters]) -> None:
        """A ladder without players.

        Args:
            system: The rating system by its name in a ladders file, such as `"elo-mmr"`.
            parameters: The system's, as in a ladders file. Without any, Elo-MMR has `weight_limit`
                0.2 and `sigma_limit` 80.

        Warns of what the system's own mathematics does to ratings in the long run, where that may
        surprise.

        Raises:
            BadParameters: A parameter is unknown, missing, or out of range.
        """
        rating = rating_of(system, parameters)
        self._load()
        from stream_rater.library.rater import Rater

        for caution in rating.cautions():
            warnings.warn(caution, stacklevel=2)

        self._rater = Rater(rating)

    def _load(self) -> None:
        """Import what rates."""
        compile_progress.in_notebook()
        from stream_rater.library import answers, messages

        self._answers, self._messages = answers, messages

    def __getstate__(self) -> "Rater":
        return self._rater

    def __setstate__(self, rater: "Rater") -> None:
        self._load()
        self._rater = rater

    @property
    def name(self) -> str:
        """The ladder's id: that of the first file that was rated, else `"notebook"`."""
        return self._rater.ladder

    @property
    def parameters(self) -> "RatingConfig":
        """By what it rates."""
        return self._rater.rating

    # --- rate ---

    def rate(
        self,
        sides: Sequence[Side],
        ranks: Sequence[int | None] | None = None,
        *,
        shares: Sequence[Shares] | None = None,
        weight: float = 1.0,
        performance_ceiling: float | None = None,
        completed_at: datetime | str | None = None,
        round_id: str | None = None,
    ) -> RoundResult:
        """Rate one round.

        Args:
            sides: Who played: each a player's id, or the ids of a team's members.
            ranks: The rank of each side: 1 is the best, equal ranks tie, None did not finish.
                Without it the sides are in order, the winner first.
            shares: By side, the part of the round that each member played, in (0, 1]; None where
                all played the whole round.
            weight: How much the round says about its players.
            performance_ceiling: No performance is estimated above this rating.
            completed_at: When it ended, with a zone; a text is in the form of RFC 3339. Without it:
                when the latest round before it was completed, so that no time passes; for the first
                round 1970-01-01T00:00:00Z. The clock is never asked.
            round_id: Its id: an id that was there before is refused. Without it, one is counted.

        Returns:
            What it did to each player, in the order of the sides.

        Raises:
            InvalidRound: The round cannot be rated; the text names the place.
        """
        make, rater = self._messages, self._rater
        who = make.sides_of(sides)
        standings = make.standings_of(who, ranks, shares)
        if completed_at is None:
            completed_at = self._answers.text_of(rater.latest_s)
        at = make.time_of(completed_at)
        given = f"notebook-{rater.end}" if round_id is None else round_id
        message = make.message_of(rater.ladder, given, at, standings, weight, performance_ceiling)
        rated = rater.rate(message)
        return self._answers.round_result(given, at, who, rated, rater.edits)

    def rate_file(self, path: str | os.PathLike[str], *, ladder: str | None = None) -> FileResult:
        """Rate the rounds of a file of JSON lines, which may be compressed by gzip, in their order.

        Lines that are no valid rounds are refused, and the others rated. Corrections in the file
        change all rounds before them, those that were rated before the file, too: the ladder then
        reads its files again.

        Args:
            path: The file.
            ladder: Only rounds of the ladder with this id. Without it the file must be of one
                ladder.

        Raises:
            OSError: The file cannot be read, or holds no JSON lines.
            OtherLadder: Its rounds are of another ladder than those before, or of several.
        """
        return self._rater.rate_file(Path(path), ladder)

    # --- ask ---

    def __getitem__(self, player: str) -> Belief:
        """What is believed of a player. Raises KeyError for who has not played."""
        return self._answers.belief(self._rater.pool, player, self._row(player))

    def _row(self, player: str) -> int:
        row = self._rater.pool.find(player) if player in self else None
        if row is None:
            raise KeyError(f"{player!r} has played no round here; get() gives a newcomer's belief")
        return row

    def get(self, player: str) -> Belief:
        """What is believed of a player, who may be a newcomer. Raises InvalidRound for what is no
        id."""
        self._messages.check_id("player", player)
        return self[player] if player in self else self._answers.newcomer(self._rater.pool, player)

    def __contains__(self, player: object) -> bool:
        return isinstance(player, str) and player in self._rater.pool

    def __len__(self) -> int:
        """How many players have played."""
        return len(self._rater.pool)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of all who have played, in order of appearance."""
        return iter(self._rater.pool.players())

    @property
    def players(self) -> Players:
        """What is believed of all who have played, in order of appearance."""
        return self._answers.players_in(self._rater.pool)

    def leaderboard(self, most: int | None = None) -> Leaderboard:
        """The best players by rating, so many at most; who has the same rating has the same rank,
        in order of id."""
        return self._answers.leaderboard(self._rater.pool, most)

    def record(self, player: str) -> bytes:
        """A player's belief in the bytes that the service stores. Raises KeyError for who has not
        played, and Unrecordable if the ladder's `history` is `"full"`."""
        (found,) = self._rater.pool.records(np.array([self._row(player)]))
        return found

    def predict(
        self,
        sides: Sequence[Side],
        *,
        shares: Sequence[Shares] | None = None,
        variance_factor: float = 1.0,
    ) -> Prediction:
        """What to expect of a round: each side's probability to win and its mean rank.

        Args:
            sides: Who plays, as in `rate`. Who has not played yet is a newcomer.
            shares: As in `rate`.
            variance_factor: What the variance of a side's performance is multiplied by: more than 1
                where predictions are too sure. `stream-rater tune` finds it.

        Raises:
            InvalidRound: These are no sides of a round, or this is no factor.
        """
        make, rater = self._messages, self._rater
        who = make.sides_of(sides)
        standings = make.standings_of(who, None, shares)
        now = self._answers.text_of(rater.latest_s)
        rater.check(make.message_of(rater.ladder, "prediction", now, standings))
        parts, factor = [each.shares for each in standings], make.factor_of(variance_factor)
        return self._answers.prediction(self.parameters, rater.pool, who.players, parts, factor)

    def what_if(
        self,
        sides: Sequence[Side],
        ranks: Sequence[int | None] | None = None,
        *,
        shares: Sequence[Shares] | None = None,
        weight: float = 1.0,
        performance_ceiling: float | None = None,
        completed_at: datetime | str | None = None,
    ) -> RoundResult:
        """What `rate` would do with the same arguments. Nothing is changed.

        Raises:
            InvalidRound: As `rate` does.
        """
        make, rater = self._messages, self._rater
        who = make.sides_of(sides)
        standings = make.standings_of(who, ranks, shares)
        if completed_at is None:
            completed_at = self._answers.text_of(rater.latest_s)
        at, given = make.time_of(completed_at), "what-if"
        message = make.message_of(rater.ladder, given, at, standings, weight, performance_ceiling)
        return self._answers.round_result(given, at, who, rater.what_if(message), rater.edits)

    def balance(self, players: Sequence[str], teams: int = 2) -> list[tuple[str, ...]]:
        """The most even teams of these players, of whom some may be newcomers: sides for `predict`
        and `rate`.

        Teams are as large as each other, or one player larger. Of 20 players in two teams, or of 12
        in three, no teams are more even; of more players they are the best that were found. The
        same players give the same teams.

        Raises:
            InvalidRound: These are no ids, or too few for so many teams.
        """
        who = self._messages.sides_of([players])
        (names,) = who.players
        self._messages.check_teams(teams, len(names))
        return self._answers.balanced(self._rater.pool, names, teams)

    def __repr__(self) -> str:
        system = self.parameters.__struct_config__.tag
        return f"<Ladder {self.name!r} by {system}: {len(self):,} players>"
