"""Predicts rounds between players of the index and newcomers, and makes even teams of them."""

from collections.abc import Mapping, Sequence

import numpy as np

from stream_rater.columns.ranges import bounds
from stream_rater.rating.balance import ImpossibleGroups, even_teams
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.wins import MODEL, Believed, VarianceFactor, deviations, shift_of_sides
from stream_rater.serve import bodies
from stream_rater.serve.problems import Refused


def check_sides(sides: Sequence[bodies.SideQuestion], most: int) -> None:
    """Raise Refused for a repeated player, a wrong number of shares, or too many players."""
    for i, side in enumerate(sides):
        if side.shares is not None and len(side.shares) != len(side.players):
            raise Refused(
                "invalid", f"{len(side.shares)} shares of {len(side.players)} players: give one "
                "for each player, or none", f"body.sides[{i}].shares",
            )  # fmt: skip
    places = {f"body.sides[{i}].players": side.players for i, side in enumerate(sides)}
    check_distinct(places)
    if (count := sum(map(len, places.values()))) > most:
        raise Refused("invalid", f"{count:,} players: ask about {most:,} at most", "body.sides")


def check_distinct(players: Mapping[str, Sequence[str]]) -> None:
    """Raise Refused if a player appears twice. `players` has lists of players; the keys are the
    places of the lists in the request."""
    seen: dict[str, str] = {}
    for place, names in players.items():
        for k, player in enumerate(names):
            place_of_player = f"{place}[{k}]"
            if player in seen:
                raise Refused(
                    "invalid", f"{player!r} stands at {seen[player]}, too: name each player once",
                    place_of_player,
                )  # fmt: skip
            seen[player] = place_of_player


def prediction(
    config: RatingConfig, sides: Sequence[bodies.SideQuestion],
    players: Sequence[bodies.PlayerAnswer],
    variance_factor: float = 1.0, fitted: bodies.CalibrationAnswer | None = None,
) -> bodies.PredictAnswer:  # fmt: skip
    """Predict a round. `players` are the players of the sides, in their order. `fitted`: what was
    learned from past rounds; None: nothing."""
    share = np.concatenate([side.shares or [1.0] * len(side.players) for side in sides])
    starts = bounds(np.array([len(side.players) for side in sides], np.int64))
    shift = shift_of_sides(config, [side.seat for side in sides])
    believed = _believed(players)
    by = VarianceFactor(*((fitted.factor, fitted.rounds) if fitted else (variance_factor,)))
    found = by.forecast(config, starts, share, believed, shift)
    raw = MODEL.forecast(config, starts, share, believed, shift)
    return bodies.PredictAnswer(
        sides=[
            bodies.SideAnswer(players=side.players, win=win, expected_rank=rank)
            for side, win, rank in zip(
                sides, found.win.tolist(), found.expected_rank.tolist(), strict=True
            )
        ],
        raw=raw.win.tolist(), calibrated=fitted is not None, calibration=fitted,
        draw=found.draw, quality=found.quality,
        pairwise=found.pairwise.tolist() if len(sides) <= bodies.MOST_PAIRED else None,
    )  # fmt: skip


def balanced_sides(
    config: RatingConfig, players: Sequence[bodies.PlayerAnswer], teams: int,
    groups: Sequence[Sequence[str]] = (),
) -> tuple[list[bodies.SideQuestion], list[bodies.PlayerAnswer]]:  # fmt: skip
    """Divide these players into the most even teams that keep groups together. Returns the teams,
    and the players in their order. Raises Refused if there are more teams than players, if a player
    appears twice, or if no teams keep the groups together."""
    if teams > len(players):
        raise Refused(
            "invalid", f"{len(players)} players make no {teams} teams: ask for fewer", "body.teams"
        )
    names = [each.player for each in players]
    check_distinct({"body.players": names})
    deviation = deviations(config, _believed(players), teams)
    try:
        found = even_teams(names, deviation, teams, groups)
    except ImpossibleGroups as error:
        raise Refused("invalid", str(error), "body.groups" + error.place) from None
    sides = [bodies.SideQuestion(players=[names[i] for i in team]) for team in found]
    return sides, [players[i] for team in found for i in team]


def _believed(players: Sequence[bodies.PlayerAnswer]) -> Believed:
    return Believed(*(np.array([getattr(each, n) for each in players]) for n in Believed._fields))
