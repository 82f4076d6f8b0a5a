"""`stream_rater.Ladder`: rates rounds in Python, and gives ratings and predictions.

The import is quick: the modules that rate are loaded when the first ladder is made.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

import numpy as np

from stream_rater.columns import compiling
from stream_rater.library import results
from stream_rater.library.parameters import Parameters, rating_of
from stream_rater.tables.reading import TableOptions, reading_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from matplotlib.axes import Axes

    from stream_rater.evaluation.measures import Evaluation
    from stream_rater.library.rater import Rater
    from stream_rater.rating.parameters import RatingConfig
    from stream_rater.replay.sequential import Rated

Columns = tuple[
    Sequence[int | None] | None, Sequence[results.Shares] | None, Sequence[str | None] | None,
    Sequence[float | None] | None,
]  # fmt: skip
"""By side: the ranks, the shares, the seats and the scores, as `Ladder.rate` takes them."""
SHOWN_PLAYERS = 10  # The number of players that a notebook shows of a ladder.


class Ladder:
    """An independent pool of ratings, in memory.

    Its numbers are those of the service and of `stream-rater rate`, bit for bit. A call that raises
    an error changes nothing. A ladder is for one thread. It can be copied and pickled: the copy has
    the ladder's log, and rates it again.
    """

    def __init__(self, system: str | None = None, **parameters: Unpack[Parameters]) -> None:
        """Make a ladder without players.

        Args:
            system: The name of the rating system in a ladders file, such as `"elo-mmr"`; without
                it, `"two-moment"` with the parameters that predict best on most games, or
                `"elo-mmr"` if some of `parameters` are its own.
            parameters: The system's parameters, as in a ladders file.

        A warning is issued if the system's own mathematics has a surprising effect in the long run.

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
        compiling.in_notebook()
        from stream_rater.library import answers, messages

        self._answers, self._messages = answers, messages

    def __getstate__(self) -> "Rater":
        return self._rater

    def __setstate__(self, rater: "Rater") -> None:
        self._load()
        self._rater = rater

    @property
    def name(self) -> str:
        """The ladder's id: that in the first file that was rated, or `"notebook"` without one."""
        return self._rater.ladder

    @property
    def parameters(self) -> "RatingConfig":
        """The rating configuration of the ladder."""
        return self._rater.rating

    # --- rate ---

    def rate(
        self, sides: Sequence[results.Side], ranks: Sequence[int | None] | None = None, *,
        shares: Sequence[results.Shares] | None = None, weight: float = 1.0,
        performance_ceiling: float | None = None, completed_at: datetime | str | None = None,
        round_id: str | None = None, seats: Sequence[str | None] | None = None,
        scores: Sequence[float | None] | None = None,
    ) -> results.RoundResult:  # fmt: skip
        """Rate one round.

        Args:
            sides: The sides of the round. Each is a player's id, or a list of the ids of a team's
                members.
            ranks: The rank of each side: 1 is the best rank, equal ranks tie, and None means that
                the side did not finish. Without ranks, the sides are in order, the winner first.
            shares: By side, the part of the round that each member played, in (0, 1]; None where
                all members played the whole round.
            weight: The weight of the round as evidence about its players.
            performance_ceiling: No performance is estimated above this rating.
            completed_at: The time at which the round ended, with a zone; a text has the form of
                RFC 3339. The default is the time of the latest round before it, so that no time
                passes, and 1970-01-01T00:00:00Z for the first round. The clock is never read.
            round_id: The id of the round. An id that was used before is rejected. Without an id,
                the ladder makes one by counting.
            seats: By side, the place from which it played, such as `"home"`; None for a side
                without one. They count if the ladder's `seats` has points for them.
            scores: By side, what it scored; None for a side without a score. They count if the
                ladder uses scores, and the ranks decide the order.

        Returns:
            The changes of each player, in the order of the sides.

        Raises:
            InvalidRound: The round cannot be rated. The text names the place in the arguments.
        """
        if round_id is None:
            round_id = f"notebook-{self._rater.end}"
        found = None
        if shares is None is performance_ceiling and seats is None is scores:
            found = self._rater.rate_plain(sides, ranks, weight, completed_at, round_id)
        if found is None:
            found = self._result(
                self._rater.rate, round_id, sides, (ranks, shares, seats, scores), weight,
                performance_ceiling, completed_at,
            )  # fmt: skip
        return found

    def _result(
        self, rate: Callable[[bytes], "Rated | None"], round_id: str, sides: Sequence[results.Side],
        of_sides: Columns, weight: float, performance_ceiling: float | None,
        completed_at: datetime | str | None,
    ) -> results.RoundResult:  # fmt: skip
        """The result of a round whose message is given to `rate`. Raises InvalidRound."""
        messages, rater = self._messages, self._rater
        given = messages.sides_of(sides)
        standings = messages.standings_of(given, *of_sides)
        if completed_at is None:
            completed_at = self._answers.text_of(rater.work.latest_s)
        at = messages.time_of(completed_at)
        message = messages.message_of(
            rater.ladder, round_id, at, standings, weight, performance_ceiling
        )
        return self._answers.round_result(round_id, at, given, rate(message), rater.work.edits)

    def rate_file(
        self, path: str | os.PathLike[str], *, ladder: str | None = None,
        columns: Mapping[str, str] | None = None, score: str = "", **how: Unpack[TableOptions],
    ) -> results.FileResult:  # fmt: skip
        """Rate the rounds of a file: JSON lines in their order, or a table in order of time.

        A name that ends in .csv, .tsv or .parquet is that of a table. JSON lines and CSV may be
        compressed by gzip. Parquet needs the extra `arrow`.

        Invalid lines are rejected, and all others are rated. A correction in the file changes all
        rounds before it, including those that were rated before the file. In that case the ladder
        reads its files again.

        Args:
            path: The file.
            ladder: The id of the ladder whose rounds are rated; rounds of other ladders are
                skipped. Without it, all rounds of the file must be of one ladder. The rounds of a
                table without a column of ladders are of this one.
            columns: Of a table: the columns by their roles, such as `{"round": "match_id"}`, if
                their names do not say it.
            score: Of a table: `"high"` or `"low"`, which scores are better.
            how: Of a table: what else its cells mean, as a question about it says.

        Returns:
            The counts of rounds, rating changes and rejected lines.

        Raises:
            OSError: The file cannot be read, or holds neither JSON lines nor a table.
            OtherLadder: The rounds are of another ladder than those before, or of several.
            ValueError: A column of a table could be meant in two ways, or is missing. The text
                names the argument that decides.
        """
        found = self._rater.rate_file(Path(path), ladder, reading_of(columns, score, how))
        return found

    def rate_table(
        self, table: Any, *, ladder: str | None = None, columns: Mapping[str, str] | None = None,
        score: str = "", **how: Unpack[TableOptions],
    ) -> results.FileResult:  # fmt: skip
        """Rate the rounds of a table in order of time, as `rate_file` rates a file of them.

        Args:
            table: A dict of columns, or a data frame of pandas, Polars, DuckDB, pyarrow, or another
                package whose frames have `__arrow_c_stream__` or `__dataframe__`. Other frames than
                those of pandas and Polars need the extra `arrow`.
            ladder, columns, score, how: As in `rate_file`.

        Returns:
            The counts of rounds, rating changes and rejected rows. A row is named by its number,
            from 1.

        Raises:
            OSError: The table cannot be read.
            OtherLadder, ValueError: As in `rate_file`.
        """
        found = self._rater.rate_table(table, ladder, reading_of(columns, score, how))
        return found

    def seed(
        self, table: Any, *, scale: str | tuple[float, float], sigma: float | None = None,
        at: datetime | str | None = None, columns: Mapping[str, str] | None = None,
        source: str = "", skip_invalid: bool = False, **how: Unpack[TableOptions],
    ) -> results.SeedResult:  # fmt: skip
        """Give players who have not played yet the ratings that they have elsewhere.

        A player who has a round or a seed on the ladder keeps the rating. So a second call with the
        same table changes nothing.

        Args:
            table: A list of dicts, one for each player, or a path or a frame as in `rate_file` and
                `rate_table`. It needs columns for the player and mu; sigma and the number of rounds
                may have columns, too.
            scale: The scale of the ratings in the table: `"trueskill"`, `"openskill"`, `"glicko"`,
                `"elo"`, `"ladder"` for that of this ladder, or the mu and sigma that a newcomer has
                there. Mu and sigma are mapped to the ladder's scale so that newcomers become
                newcomers.
            sigma: The sigma of players without one, on the scale of the table.
            at: The time at which the ratings were true, as `completed_at` in `rate`. The default is
                the time of the latest round.
            columns: The columns by their roles `player`, `mu`, `sigma` and `rounds`, such as
                `{"mu": "elo"}`, if their names do not say it.
            source: A text for people, which the ladder's log has.
            skip_invalid: Whether the valid rows count if other rows are invalid.
            how: `decimal` and `encoding`, as in `rate_file`.

        Returns:
            The counts of players, of those who begin with their rating, and of those whose sigma
            was greater than a newcomer's, and was cut to that.

        Raises:
            InvalidRound: A row or the time is invalid. The text names the row and the column.
            OSError: The table cannot be read.
            ValueError: A column could be meant in two ways, or is missing, or the scale is unknown.
                The text names the argument that decides.
        """
        from stream_rater.library import seeding

        return seeding.seed(
            self._rater, table, scale, sigma, at, reading_of(columns, "", how), source,
            skip_invalid=skip_invalid,
        )  # fmt: skip

    def reset(
        self, player: str, sigma: float, mu: float | None = None, *,
        at: datetime | str | None = None,
    ) -> results.Belief:  # fmt: skip
        """Make one player's rating uncertain again, from here on.

        Args:
            player: The id of a player who has a round or a seed.
            sigma: What sigma becomes at least, in rating points; at most the initial one.
            mu: What mu becomes; None: it stays.
            at: The time of the reset, as in `seed`.

        Returns:
            The belief after the reset.

        Raises:
            KeyError: The player has neither a round nor a seed.
            InvalidRound: `sigma`, `mu` or `at` is invalid.
        """
        from stream_rater.library import seeding

        self._row(player)
        seeding.reset(self._rater, player, sigma, mu, at)
        return self[player]

    # --- ask ---

    def __getitem__(self, player: str) -> results.Belief:
        """The belief about a player. Raises KeyError if the player has not played."""
        return self._answers.belief(self._rater.pool, player, self._row(player))

    def _row(self, player: str) -> int:
        row = self._rater.pool.find(player) if player in self else None
        if row is None:
            raise KeyError(f"{player!r} has played no round here; get() gives a newcomer's belief")
        return row

    def get(self, player: str) -> results.Belief:
        """The belief about a player, who may be a newcomer. Raises InvalidRound for no id."""
        self._messages.check_id("player", player)
        return self[player] if player in self else self._answers.newcomer(self._rater.pool, player)

    def __contains__(self, player: object) -> bool:
        return isinstance(player, str) and player in self._rater.pool

    def __len__(self) -> int:
        """The number of players who have played."""
        return len(self._rater.pool)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of all players who have played, in order of appearance."""
        return iter(self._rater.pool.players())

    @property
    def players(self) -> results.Players:
        """The beliefs about all players who have played, in order of appearance."""
        return self._answers.players_in(self._rater.pool)

    def leaderboard(self, most: int | None = None) -> results.Leaderboard:
        """The best players by rating, at most `most` (None: all). Players with the same rating have
        the same rank, and are in order of id."""
        return self._answers.leaderboard(self._rater.pool, most)

    def record(self, player: str) -> bytes:
        """The belief about a player in the bytes that the service stores. Raises KeyError if the
        player has not played, and Unrecordable if the ladder's `history` is `"full"`."""
        (found,) = self._rater.pool.records(np.array([self._row(player)]))
        return found

    def predict(
        self, sides: Sequence[results.Side], *, shares: Sequence[results.Shares] | None = None,
        variance_factor: float | None = None, seats: Sequence[str | None] | None = None,
    ) -> results.Prediction:  # fmt: skip
        """Predict a round: the probability of each side to win, and its mean rank.

        How sure the prediction is, follows from the ladder's newest rounds, of which each is
        predicted by the ratings before it: the factor is learned by which the variance of a side's
        performance was too small, or too large. `raw` has the prediction without it.

        Args:
            sides: The sides, as in `rate`. A player who has not played yet is a newcomer.
            shares: The shares, as in `rate`.
            variance_factor: The factor by which the variance of a side's performance is multiplied,
                instead of the one that is learned. 1 is the model as it is.
            seats: The seats, as in `rate`.

        Raises:
            InvalidRound: The sides, the shares, the seats or the factor are invalid.
        """
        messages, rater = self._messages, self._rater
        by = rater.variance_factor(variance_factor)
        if shares is None and seats is None:
            found = rater.predict_plain(sides, by)
            if found is not None:
                return found
        standings = messages.standings_of(messages.sides_of(sides), None, shares, seats)
        now = self._answers.text_of(rater.work.latest_s)
        rater.decoded(messages.message_of(rater.ladder, "prediction", now, standings))
        return self._answers.prediction(self.parameters, rater.pool, standings, by)

    def what_if(
        self, sides: Sequence[results.Side], ranks: Sequence[int | None] | None = None, *,
        shares: Sequence[results.Shares] | None = None, weight: float = 1.0,
        performance_ceiling: float | None = None, completed_at: datetime | str | None = None,
        seats: Sequence[str | None] | None = None, scores: Sequence[float | None] | None = None,
    ) -> results.RoundResult:  # fmt: skip
        """The result that `rate` would give for the same arguments. The ladder does not change.

        Raises:
            InvalidRound: The round cannot be rated, as in `rate`.
        """
        rate = self._rater.what_if
        return self._result(
            rate, "what-if", sides, (ranks, shares, seats, scores), weight, performance_ceiling,
            completed_at,
        )  # fmt: skip

    # --- look back ---

    def history(self, player: str) -> results.History:
        """The rounds of a player, with the beliefs before and after each of them, by a replay of
        all rounds of the ladder. Corrections apply to all rounds before them, so a history has the
        numbers with all corrections so far. Raises KeyError if the player has not played, and
        OSError if a file that was rated has changed."""
        (found,) = self._histories([player])
        return found

    def _histories(self, players: Sequence[str]) -> "list[results.History]":
        for each in players:
            self._row(each)
        return self._rater.histories(players)

    def calibration(
        self, train: float = 0.5, *, variance_factor: float = 1.0
    ) -> results.Calibration:
        """How often sides won, by their predicted probability to win. The ladder rates all its
        rounds again, and predicts each by the ratings before it. The numbers are those of
        `stream-rater evaluate --calibration` for the same rounds.

        Args:
            train: The fraction of the rounds, from the first one on, that only build experience.
            variance_factor: The variance factor of the predictions, as in `predict`.

        Raises:
            ValueError: `train` is not in [0, 1), or the factor is invalid.
            OSError: A file that was rated has changed.
        """
        from stream_rater.library.comparing import evaluation_of
        from stream_rater.rating.wins import ANY

        measured = evaluation_of(self._rater, train, variance_factor, "mu", ANY)
        return self._answers.calibration_of(measured.calibration)

    def evaluate(
        self, train: float = 0.5, *, variance_factor: float = 1.0,
        by: Literal["mu", "display"] = "mu",
    ) -> "Evaluation":  # fmt: skip
        """How well the ladder's parameters predict its rounds, each by the ratings before it. The
        ladder rates all its rounds again. The numbers are those of `stream-rater evaluate`, and the
        arguments those of `stream_rater.compare`. Raises ValueError for an invalid one, and OSError
        if a file that was rated has changed.
        """
        from stream_rater.library.comparing import evaluation_of

        return evaluation_of(self._rater, train, variance_factor, by)

    def tune(
        self, system: str | None = None, *, train: float = 0.5, trials: int = 200,
        metric: str = "log_loss", executor: "Executor | None" = None,
    ) -> results.Tuning:  # fmt: skip
        """Search parameters that predict the rounds of this ladder better than its own. The ladder
        does not change. The numbers are those of `stream-rater tune` for the same rounds and
        present parameters.

        Args:
            system: The system to tune, beginning with its first guess; None: the ladder's own,
                beginning with the ladder's parameters.
            train: The fraction of the rounds, from the first one on, on which the search is done.
                The other rounds compare the result with the ladder's own parameters.
            trials: The number of configurations to try, about.
            metric: The measure to tune by: `"log_loss"`, or another one that is about pairs.
            executor: What does the trials: any executor of `concurrent.futures`, such as a
                ProcessPoolExecutor, or `Client.get_executor()` of Dask. None: this process. The
                result is the same for all, to the last digit.

        Raises:
            ValueError: An argument is invalid, or there are too few rounds.
            MissingExtra: SciPy is not installed: the extra `lab` brings it.
            TrialsFailed: The executor cannot do the trials, as when a process was killed.
            OSError: A file that was rated has changed.
        """
        from stream_rater.library.comparing import tuning_of

        fraction = self._messages.fraction_of(train)
        return tuning_of(self._rater, system, metric, fraction, trials, executor)

    # --- draw ---

    def plot(
        self, player: str | Sequence[str], *, over: Literal["rounds", "time"] = "rounds",
        ax: "Axes | None" = None,
    ) -> "Axes":  # fmt: skip
        """Draw the rating of a player, or of several, after each of their rounds, with mu and its
        uncertainty as an area. The numbers are those of `history`.

        Args:
            player: The id of a player, or a list of ids.
            over: Where a point stands: at the number of the player's rounds, or at the time of the
                round.
            ax: The Matplotlib axes to draw into. Without them, a new figure is made.

        Returns:
            The axes. Their `figure` can be saved.

        Raises:
            KeyError: A player has not played.
            MissingExtra: Matplotlib is not installed: the extra `lab` brings it.
            OSError: A file that was rated has changed.
        """
        from stream_rater.library import plots

        if over not in get_args(plots.Over):
            raise ValueError(f"over: {over!r} is neither 'rounds' nor 'time'")
        players = [player] if isinstance(player, str) else list(player)
        sigma = self._rater.pool.rule.initial_sigma
        return plots.ratings(self._histories(players), sigma, over, ax)

    def plot_board(self, most: int | None = 20, *, ax: "Axes | None" = None) -> "Axes":
        """Draw the best `most` players: the rating of each, and mu with its uncertainty as a line.
        `most` is as in `leaderboard`; `ax`, the result and MissingExtra are as in `plot`."""
        from stream_rater.library import plots

        sigma = self._rater.pool.rule.initial_sigma
        return plots.board(self.leaderboard(most), len(self), sigma, ax)

    def plot_calibration(
        self, train: float = 0.5, *, variance_factor: float = 1.0, ax: "Axes | None" = None
    ) -> "Axes":
        """Draw how often sides won, by their predicted probability to win, with 95 % intervals. The
        arguments, the numbers and the errors are those of `calibration`; `ax`, the result and
        MissingExtra are as in `plot`."""
        from stream_rater.library import plots

        found = self.calibration(train, variance_factor=variance_factor)
        return plots.calibration(found, self.name, ax)

    # --- teams ---

    def balance(
        self, players: Sequence[str], teams: int = 2, groups: Sequence[Sequence[str]] = ()
    ) -> list[tuple[str, ...]]:
        """Divide players into the most even teams. Some players may be newcomers. The players of
        each of `groups`, such as friends, are in the same team.

        The sizes of the teams differ by at most one player. Up to 20 players in two teams, or 12 in
        three, no other teams are more even; for more players, the teams are the best that were
        found. The same players always give the same teams.

        Returns:
            The players of each team, which can be given to `predict` and `rate` as sides.

        Raises:
            InvalidRound: The players are not ids, or are too few for this number of teams; or no
                such teams keep the groups together.
        """
        (names,) = self._messages.sides_of([players])
        self._messages.check_teams(teams, len(names))
        together = self._messages.sides_of(groups, "groups")
        return self._answers.balanced(self._rater.pool, names, teams, together)

    def __repr__(self) -> str:
        system = self.parameters.__struct_config__.tag
        return f"<Ladder {self.name!r} by {system}: {len(self):,} players>"

    def _repr_html_(self) -> str:
        best, system = self.leaderboard(SHOWN_PLAYERS), self.parameters.__struct_config__.tag
        which = f", the best {len(best)}" if len(best) < len(self) else ""
        return best.to_html(f"{self.name}: {len(self):,} players by {system}{which}")
