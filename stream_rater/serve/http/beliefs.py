"""Answers the questions that need the workers' whole beliefs: which changes a result would make,
how factors explain a rating, and with which ratings of another ladder players begin. A process that
may read only the index refuses these questions with `no-beliefs`."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np

from stream_rater.config.ladders import Ladders
from stream_rater.contract.errors import Denied, LayoutMismatch, TopicMismatch, Trouble
from stream_rater.contract.events import Entry, parse_time
from stream_rater.contract.seeds import SeededPlayer
from stream_rater.index.entries import History
from stream_rater.index.reader import AbsentLadder, IndexReader
from stream_rater.places.live_beliefs import LaddersDiffer, LiveBeliefs, StaleBeliefs, UnratedLadder
from stream_rater.places.port import Place
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.wins import Believed
from stream_rater.replay import what_if
from stream_rater.replay.rating_changes import numbers_of
from stream_rater.replay.sequential import Rated
from stream_rater.replay.what_if import RemovedPlayer, believed, playing_as
from stream_rater.rounds.seed_records import Taken, brought, seeded_players
from stream_rater.rounds.validation import Invalid
from stream_rater.serve import bodies
from stream_rater.serve.explaining import explain_belief
from stream_rater.serve.http.limits import FairExecutor
from stream_rater.serve.predicting import check_sides
from stream_rater.serve.problems import Refused

MOST_WAITING = 32  # The most questions of an address that may wait for the thread.
UNKNOWN_S = 30.0  # The pause after the started seasons could not be read.


UNREADABLE = LaddersDiffer, StaleBeliefs, LayoutMismatch, TopicMismatch, Trouble, Denied


class BeliefQuestions:
    """Answers questions for the event loop, or raises Refused. One thread works on these questions,
    one after the other, so they do not delay other requests."""

    def __init__(self, ladders: Ladders, index: IndexReader, connect: Callable[[], Place]) -> None:
        """`connect` is called in the thread, with the first question."""
        self._ladders, self._index, self._connect = ladders, index, connect
        self._executor = FairExecutor("beliefs", 1, MOST_WAITING)
        self._live: LiveBeliefs | None = None
        self._unknown_until_s = 0.0  # Until when the started seasons count as unknown.

    async def what_if(self, ladder: str, question: bodies.WhatIfQuestion) -> bodies.WhatIfAnswer:
        """Compute the changes that the result of a round would make."""
        players = [player for side in question.sides for player in side.players]
        offsets = await self._offsets(ladder, players)
        return await self._executor.run(partial(self._what_if, ladder, question, offsets))

    async def explain(self, ladder: str, player: str) -> bodies.ExplainAnswer:
        """Explain a player's rating by the factors of the belief."""
        offsets = await self._offsets(ladder, [player])
        history = await self._index.history(ladder, player) if offsets else ()
        return await self._executor.run(partial(self._explain, ladder, player, history, offsets))

    async def beginnings(
        self, ladder: str, source: str, more_sigma: float, players: Sequence[str]
    ) -> list[SeededPlayer]:
        """The players who begin with a rating of the ladder `source` (see `beginnings_of`)."""
        published = await self._offsets(ladder, players), await self._offsets(source, players)

        def work() -> list[SeededPlayer]:
            with _errors_as_problems([]):
                return beginnings_of(
                    self._beliefs, self._ladders, (ladder, source), published, more_sigma, players
                )

        return await self._executor.run(work)

    async def started_seasons(self, ladder: str) -> Sequence[int]:
        """The numbers of a ladder's started seasons, in order; none if they cannot be read."""

        def work() -> Sequence[int]:
            with _errors_as_problems([]):
                return self._beliefs.started_seasons(ladder)

        if time.monotonic() < self._unknown_until_s:
            return []
        try:
            return await self._executor.run(work)
        except Refused:
            self._unknown_until_s = time.monotonic() + UNKNOWN_S
            return []

    async def _offsets(self, ladder: str, players: Sequence[str]) -> dict[str, int]:
        """By player with a counted round, the offset of the last change that the index has. The
        beliefs that are used must not be older."""
        try:
            found = await self._index.players(ladder, players)
        except AbsentLadder:
            if await self._index.ladder(ladder) is not None:
                raise
            return {}  # its first round may be rated, and its events not read yet
        return {
            player: each.offset
            for player, each in zip(players, found, strict=True)
            if each is not None and each.rounds
        }

    # --- in the thread ---

    def _what_if(
        self, ladder: str, question: bodies.WhatIfQuestion, offsets: Mapping[str, int]
    ) -> bodies.WhatIfAnswer:
        sides = question.sides
        check_sides(sides, bodies.MOST_PLAYERS)
        standings = entries_of(question)
        time_s = None
        if question.completed_at is not None:
            try:
                time_s = parse_time(question.completed_at)
            except ValueError as error:
                raise Refused("invalid", f"bad-time: {error}", "body.completed_at") from None
        players = [player for side in sides for player in side.players]
        with _errors_as_problems(sides):
            known = self._beliefs.of(ladder, players, time_s, offsets)
            ceiling = question.performance_ceiling
            rated = what_if.rate_future_round(known, standings, question.weight, ceiling)
        return bodies.WhatIfAnswer(changes=[] if rated is None else _changes(rated, sides, known))

    def _explain(
        self, ladder: str, player: str, history: History, offsets: Mapping[str, int]
    ) -> bodies.ExplainAnswer:
        with _errors_as_problems([]):
            try:
                pool = self._beliefs.of(ladder, [player], published=offsets).pool
            except RemovedPlayer:
                raise _no_player(ladder, player) from None
            row = pool.find(player)
            if row is None:
                raise _no_player(ladder, player)
            beliefs = pool.beliefs(np.array([row]))
            if beliefs.header["rounds"][0] == 0:
                raise _no_player(ladder, player)
            return explain_belief(player, beliefs, pool.rule, history)

    @property
    def _beliefs(self) -> LiveBeliefs:
        if self._live is None:
            self._live = LiveBeliefs(self._ladders, self._connect())
        return self._live


@contextmanager
def _errors_as_problems(sides: Sequence[bodies.SideQuestion]) -> Iterator[None]:
    """Convert the exceptions that a question raises to Refused."""
    try:
        yield
    except UnratedLadder as error:
        raise Refused("unknown-ladder", str(error), "path.ladder") from None
    except RemovedPlayer as error:
        raise Refused("invalid", str(error), _place_of(error.player, sides)) from None
    except Invalid as error:
        raise Refused("invalid", f"{error.code}: {error}", "body") from None
    except UNREADABLE as error:
        raise Refused("no-beliefs", str(error)) from None


def _place_of(player: str, sides: Sequence[bodies.SideQuestion]) -> str:
    i = next(i for i, side in enumerate(sides) if player in side.players)
    return f"body.sides[{i}].players[{sides[i].players.index(player)}]"


def _no_player(ladder: str, player: str) -> Refused:
    return Refused(
        "unknown-player", f"{player!r} has no round that counts on ladder {ladder!r}",
        "path.player",
    )  # fmt: skip


def entries_of(question: bodies.WhatIfQuestion) -> list[Entry]:
    """The standings of a round with this result. Raises Refused if there is not one rank for each
    side, or not one score for each if there are scores."""
    sides, ranks, scores = question.sides, question.ranks, question.scores
    if len(ranks) != len(sides):
        raise Refused(
            "invalid", f"{len(ranks)} ranks of {len(sides)} sides: give one for each, null for "
            "who did not finish", "body.ranks",
        )  # fmt: skip
    scores = [None] * len(sides) if scores is None else scores
    if len(scores) != len(sides):
        raise Refused(
            "invalid", f"{len(scores)} scores of {len(sides)} sides: give one for each, null for a "
            "side without one", "body.scores",
        )  # fmt: skip
    return [
        Entry(
            team=tuple(side.players), shares=None if side.shares is None else tuple(side.shares),
            rank=rank, dnf=rank is None, seat=side.seat, score=score,
        )
        for side, rank, score in zip(sides, ranks, scores, strict=True)
    ]  # fmt: skip


def _changes(
    rated: Rated, sides: Sequence[bodies.SideQuestion], known: what_if.KnownBeliefs
) -> list[bodies.WhatIfChangeAnswer]:
    """The changes of the players, in the order of the sides."""
    order, side = what_if.order_by_sides(rated, [each.players for each in sides], known.edits)
    names, rounds = rated.rounds.names.texts(), rated.result.wave.rounds + 1
    found = []
    for i, at, numbers in zip(
        order.tolist(), side.tolist(), numbers_of(rated)[order].tolist(), strict=True
    ):
        mu, sigma, before_mu, before_sigma, performance, rating, before = numbers
        found.append(
            bodies.WhatIfChangeAnswer(
                player=names[i], side=at, mu=mu, sigma=sigma, previous_mu=before_mu,
                previous_sigma=before_sigma, performance=performance, rating=rating,
                previous_rating=before, rounds=int(rounds[i]),
                provisional=bool(rounds[i] < rated.rule.provisional_rounds),
            )
        )  # fmt: skip
    return found


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
    """The players who have a rating on another ladder, but no belief on this one, with that rating
    on the scale of this ladder. They are in the order of `players`.

    `names`: this ladder, and the other one. `published`: that of each. `more_sigma` is added to
    each sigma. A player who was removed from one of the ladders is left out. Raises Refused if the
    other ladder was never rated, and what `LiveBeliefs.of` raises.
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
