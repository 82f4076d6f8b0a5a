"""Finds the ratings with which the players of a round begin on its ladder: those that they have on
another one."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.config.ladders import Ladders
from stream_rater.contract.seeds import SeededPlayer
from stream_rater.places.live_beliefs import LiveBeliefs, UnratedLadder
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.wins import Believed
from stream_rater.replay.what_if import RemovedPlayer, believed, playing_as
from stream_rater.rounds.seed_records import Taken, brought, seeded_players
from stream_rater.serve.problems import Refused

Published = Mapping[str, int]
"""For some players, the offset of the last change that is known to exist."""


class _Known(NamedTuple):
    """What is believed on a ladder about n players."""

    rating: RatingConfig
    players: Sequence[str]  # (n,) the players, without those who were removed from the ladder.
    beliefs: Believed


def beginnings_of(
    live: LiveBeliefs, ladders: Ladders, names: tuple[str, str],
    published: tuple[Published, Published], more_sigma: float, players: Sequence[str],
) -> list[SeededPlayer]:  # fmt: skip
    """Those of these players who have no belief on a ladder and have one on another, with the
    rating of the other one on the ladder's scale. Their order is that of `players`.

    `names`: the ladder, and the one from which the ratings come. `published`: the same of both.
    `more_sigma` is added to each sigma. A player who was removed from one of the ladders is left
    out. Raises Refused if the second ladder was never rated, and as `LiveBeliefs.of` does.
    """
    ladder, source = names
    try:
        there = _known(live, source, players, published[1])
    except UnratedLadder as error:
        raise Refused("unknown-ladder", str(error), "query.seed_from") from None
    played = zip(there.players, there.beliefs.rounds.tolist(), strict=True)
    wanted = [player for player, rounds in played if rounds]
    try:
        here = _known(live, ladder, wanted, published[0])
    except UnratedLadder:  # nobody has a belief before its first round
        terms = ladders.find(ladder, 0)
        if terms is None:
            return []  # the round is refused
        rating, new = terms.rating, set(wanted)
    else:
        columns = zip(here.players, here.beliefs.rounds.tolist(), strict=True)
        rating, new = here.rating, {player for player, rounds in columns if not rounds}
    rows = np.flatnonzero([player in new for player in there.players])
    chosen = [there.players[row] for row in rows.tolist()]
    mu, sigma, _ = there.beliefs
    to = brought(there.rating, rating, mu[rows], sigma[rows], Taken(more_sigma))
    return seeded_players(rating, chosen, to[0], to[1])


def _known(live: LiveBeliefs, ladder: str, players: Sequence[str], published: Published) -> _Known:
    """What is believed about those of these players who may play on a ladder."""
    left = list(players)
    while True:
        try:
            known = live.of(ladder, left, None, published)
            owners = list(playing_as(left, known).values())
            return _Known(known.pool.rating, left, believed(known.pool, owners))
        except RemovedPlayer as error:
            left.remove(error.player)
