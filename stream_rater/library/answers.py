"""Builds the results of the library from a ladder's pool and replay."""

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.ranges import bounds
from stream_rater.contract.events import EPOCH, Entry
from stream_rater.library import results
from stream_rater.library.messages import Plain, Sides
from stream_rater.library.tables import objects
from stream_rater.rating import wins
from stream_rater.rating.balance import ImpossibleGroups, even_teams
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.seasons import seen
from stream_rater.rating.stages import RatingRule, ratings
from stream_rater.replay.edits import Edits
from stream_rater.replay.pool import Pool
from stream_rater.replay.rating_changes import numbers_of
from stream_rater.replay.sequential import Rated
from stream_rater.replay.single import CHANGES
from stream_rater.replay.what_if import believed, order_by_sides

if TYPE_CHECKING:
    from stream_rater.evaluation.measures import WinBin

NO_ROWS = np.empty(0, np.int64)
# The columns of `numbers_of`.
NUMBERS = (
    "mu", "sigma", "previous_mu", "previous_sigma", "performance", "rating", "previous_rating",
)  # fmt: skip


@lru_cache(maxsize=8)
def text_of(time_s: int) -> str:
    """A time in Unix seconds, as RFC 3339 text in UTC."""
    return (EPOCH + timedelta(seconds=time_s)).isoformat().replace("+00:00", "Z")


# --- a round ---


def round_result(
    round_id: str, completed_at: str, sides: Sides, rated: Rated | None, edits: Edits
) -> results.RoundResult:
    """The result of a round, with its players in the order of the sides. Players whom corrections
    have removed are left out. `rated`: None if the round changed no rating."""
    names, rank, rounds, fewest = list[str](), NO_ROWS, NO_ROWS, 0
    order, side, numbers = NO_ROWS, NO_ROWS, np.empty((0, len(NUMBERS)))
    if rated is not None:
        order, side = order_by_sides(rated, sides, edits)
        names, fewest = rated.rounds.names.texts(), rated.rule.provisional_rounds
        rank = np.repeat(rated.rounds.place, rated.rounds.members).astype(np.int64)
        rounds, numbers = rated.result.wave.rounds + 1, numbers_of(rated)
    return results.RoundResult(
        round_id=round_id, completed_at=completed_at, player=objects(names)[order], side=side,
        rank=rank[order], rounds=rounds[order], provisional=rounds[order] < fewest,
        **dict(zip(NUMBERS, numbers[order].T.copy(), strict=True)),
    )  # fmt: skip


def of_plain(given: Plain, found: Floats, rule: RatingRule, _: str) -> dict[str, Any]:
    """The fields of the result of a plain round. `found` (6, P): the CHANGES that it made, in the
    order of the sides."""
    changes, players = dict(zip(CHANGES, found.copy(), strict=True)), sum(given.sides, ())
    n, members = len(given.given), len(players) // len(given.given)
    rounds, same = changes["rounds"].astype(np.int64), np.zeros(len(players), np.int64)
    for name in ("", "previous_"):
        mu, sigma = changes[f"{name}mu"], changes[f"{name}sigma"]
        changes[f"{name}rating"] = ratings([rule], same, mu, sigma)
    return {
        **changes, "round_id": given.round_id, "completed_at": given.completed_at, "rounds": rounds,
        "player": objects([*map(str, players)]), "side": np.repeat(np.arange(n), members),
        "rank": np.repeat(np.array(given.ranks or range(1, n + 1)), members),
        "provisional": rounds < rule.provisional_rounds,
    }  # fmt: skip


def history_in(rated: Rated, player: str, row: int) -> results.History:
    """The rounds of a player among the rated ones. `row`: the player's row in the pool."""
    at, rounds = np.flatnonzero(rated.rows == row), rated.rounds
    number = np.searchsorted(bounds(rounds.sizes), at, "right") - 1
    numbers = numbers_of(rated)[at] if len(at) else np.empty((0, len(NUMBERS)))
    played: Ints = rated.result.wave.rounds[at] + 1
    return results.History(
        player=player, round_id=objects([rounds.heads[i].round_id for i in number.tolist()]),
        completed_at=rounds.time[number].astype("datetime64[s]"),
        rank=np.repeat(rounds.place, rounds.members)[at].astype(np.int64), rounds=played,
        provisional=played < rated.rule.provisional_rounds,
        **dict(zip(NUMBERS, numbers.T.copy(), strict=True)),
    )  # fmt: skip


def joined(player: str, parts: Sequence[results.History]) -> results.History:
    """The rounds of a player in all these parts; none if the player has only a seed."""
    none = results.History(
        player=player, round_id=objects([]), completed_at=np.empty(0, "datetime64[s]"),
        rank=NO_ROWS, rounds=NO_ROWS, provisional=np.empty(0, np.bool_),
        **dict.fromkeys(NUMBERS, np.empty(0)),
    )  # fmt: skip
    columns = [part.columns() for part in (none, *parts)]
    whole: dict[str, Any] = {
        name: np.concatenate([each[name] for each in columns]) for name in columns[0]
    }
    return results.History(player=player, **whole)


# --- beliefs ---


def newcomer(pool: Pool, player: str) -> results.Belief:
    """The initial belief about a player who has not played yet."""
    rule = pool.rule
    mu, sigma = rule.initial_mu, rule.initial_sigma
    provisional = rule.provisional_rounds > 0
    return results.Belief(player, mu, sigma, rule.rating(mu, sigma), 0, provisional, None)


def belief(pool: Pool, player: str, row: int) -> results.Belief:
    """The belief about the player in this row of the pool."""
    values = (column.tolist()[0] for column in _columns(pool, np.array([row])))
    mu, sigma, rating, rounds, provisional, time_s = values
    return results.Belief(player, mu, sigma, rating, rounds, provisional, text_of(time_s))


def players_in(pool: Pool, rows: Ints | None = None) -> results.Players:
    """The beliefs about the players in these (N,) rows of the pool; None: about all players."""
    rows = np.arange(len(pool)) if rows is None else rows
    mu, sigma, rating, rounds, provisional, time = _columns(pool, rows)
    return results.Players(
        player=objects(pool.names.take(rows).texts()), mu=mu, sigma=sigma, rating=rating,
        rounds=rounds, provisional=provisional, last_completed_at=time.astype("datetime64[s]"),
    )  # fmt: skip


def _columns(pool: Pool, rows: Ints) -> tuple[Floats, Floats, Floats, Ints, Flags, Ints]:
    """The columns (N,) mu, sigma, rating, rounds, provisional, and last time in Unix seconds."""
    header = pool.headers(rows)
    mu, sigma = (column.copy() for column in seen(pool.rule, header))
    rounds: Ints = header["rounds"].astype(np.int64)
    provisional: Flags = rounds < pool.rule.provisional_rounds
    return mu, sigma, _shown(pool, mu, sigma), rounds, provisional, header["time"].copy()


def _shown(pool: Pool, mu: Floats, sigma: Floats) -> Floats:
    return ratings([pool.rule], np.zeros(len(mu), np.int64), mu, sigma)


def leaderboard(pool: Pool, most: int | None) -> results.Leaderboard:
    """The best `most` players, ordered by rating, then by id; None: all players."""
    given: object = most
    if not isinstance(given, Integral | None):
        raise ValueError(f"most: {given!r} is no whole number; None: all players")
    rows = np.arange(len(pool))
    rating = _shown(pool, *seen(pool.rule, pool.headers(rows)))
    most = len(pool) if most is None else min(max(most, 0), len(pool))
    if most < len(pool):
        least = -np.partition(-rating, most)[most]
        rows = rows[rating >= least]
    names = pool.names.take(rows).texts()
    order = sorted(range(len(rows)), key=lambda i: (-rating[rows[i]], names[i]))[:most]
    found = players_in(pool, rows[np.array(order, np.int64)])
    better = np.searchsorted(-found.rating, -found.rating, "left")
    percentile = 100.0 * (len(pool) - 1 - better) / max(len(pool), 1)
    return results.Leaderboard(**found.columns(), rank=better + 1, percentile=percentile)


# --- predictions ---


def calibration_of(bins: Sequence["WinBin"]) -> results.Calibration:
    """These bins of sides as columns."""
    low, high, sides, predicted, won, won_low, won_high = np.array([
        (each.low, each.high, each.sides, each.foretold, each.won, each.won_low, each.won_high)
        for each in bins
    ], np.float64).reshape(-1, 7).T.copy()  # fmt: skip
    return results.Calibration(
        low, high, sides.astype(np.int64), predicted, won, won_low, won_high
    )  # fmt: skip


def prediction(
    config: RatingConfig, pool: Pool, standings: Sequence[Entry], by: wins.VarianceFactor
) -> results.Prediction:
    """The prediction for a round with these sides. Newcomers have the initial belief."""
    sides = [side.team or (side.player or "",) for side in standings]
    players = believed(pool, [player for side in sides for player in side])
    share = np.concatenate([
        np.ones(len(side)) if each.shares is None else np.array(each.shares)
        for side, each in zip(sides, standings, strict=True)
    ])  # fmt: skip
    starts = bounds(np.array([len(side) for side in sides], np.int64))
    shift = wins.shift_of_sides(config, [each.seat for each in standings])
    found = [each.forecast(config, starts, share, players, shift) for each in (by, wins.MODEL)]
    return results.Prediction(**_fields(sides, found, by))


def predicted(
    config: RatingConfig, sides: Sides, found: tuple[float, float, Floats],
    by: wins.VarianceFactor, name: str,
) -> dict[str, Any]:  # fmt: skip
    """`win`, or all fields of a prediction if another one is asked for. `found` is that of
    `PlainRounds.forecast`."""
    if name == "win" and config.upset == 0.0 and found[0] + found[1] <= 1.0:
        return {"win": np.array(found[:2])}
    mu, sigma = found[2]
    given = config, np.arange(0, len(mu) + 1, len(sides[0])), np.ones(len(mu)), mu, sigma
    if name == "win":
        return {"win": wins.win_probabilities(by.performances(*given))}
    both = [wins.forecast(each.performances(*given)) for each in (by, wins.MODEL)]
    return _fields(sides, both, by)


def _fields(
    sides: Sequence[tuple[str, ...]], both: Sequence[wins.Forecast], by: wins.VarianceFactor
) -> dict[str, Any]:
    """The fields of a prediction from the forecasts with and without the factor."""
    found, raw = both
    return {
        **found._asdict(), "players": objects(list(sides)), "raw": raw.win,
        "variance_factor": by.factor, "learned_from": by.rounds,
    }  # fmt: skip


def balanced(
    pool: Pool, players: Sequence[str], teams: int, groups: Sequence[Sequence[str]]
) -> list[tuple[str, ...]]:
    """The most even teams of these players that keep groups together. Raises InvalidRound."""
    deviation = wins.deviations(pool.rating, believed(pool, players), teams)
    try:
        found = even_teams(players, deviation, teams, groups)
    except ImpossibleGroups as error:
        raise results.InvalidRound("malformed", f"groups{error.place}: {error}") from None
    return [tuple(players[i] for i in members) for members in found]
