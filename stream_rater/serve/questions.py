"""Answers the questions about ladders, players and past seasons from the index.

While the index is being made, a player with many rounds looks like a newcomer. So `IndexReader`
raises Incomplete if it is not known to be complete.
"""

import difflib
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TypeVar

from msgspec import UNSET, to_builtins

from stream_rater.config.ladders import PLAIN, Ladders
from stream_rater.config.views import Unmet, Views
from stream_rater.contract.errors import Denied, StoreTrouble
from stream_rater.contract.events import ROUND_COMPLETED
from stream_rater.contract.season_ended import SeasonKept
from stream_rater.index import reader
from stream_rater.index.entries import BIN, IndexedPlayer
from stream_rater.index.reader import AbsentLadder, Incomplete, IndexReader
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.stages import RatingRule, rule_of
from stream_rater.serve import bodies, routes
from stream_rater.serve.card import draw_card
from stream_rater.serve.predicting import balanced_sides, check_sides, prediction
from stream_rater.serve.problems import Refused, refused_record

MOST_DIGITS = 18  # The most digits of the number of a season in a request.
MOST_DOUBTED = 10  # The most new ladders of a request whose names are compared,
MOST_COMPARED = 1000  # and the most ladders that there may be for that: it takes time.
VIEW_CACHE_S = 1.0  # The seconds for which the view of a ladder is cached.

T = TypeVar("T")
Compute = Callable[[Callable[[], bodies.PredictAnswer]], Awaitable[bodies.PredictAnswer]]
"""Runs a computation without delaying other requests."""
StartedSeasons = Callable[[str], Awaitable[Sequence[int]]]
"""Returns the numbers of a ladder's started seasons, in order; none if unknown."""


class Questions:
    """Answers questions. Raises Refused, and what `index` raises, such as Incomplete."""

    def __init__(
        self, index: IndexReader, ladders: Ladders, is_complete: Callable[[], bool],
        clock: Callable[[], float], compute: Compute, now: Callable[[], float],
        learned: Callable[[str, RatingConfig], bodies.CalibrationAnswer | None] = lambda *_: None,
    ) -> None:  # fmt: skip
        """`is_complete` returns whether the index has every published event, `clock` monotonic
        seconds, `now` Unix seconds. `compute` runs long computations. `learned` returns what was
        learned about the predictions of a ladder with these parameters, if anything."""
        self._index, self._ladders, self._is_complete = index, ladders, is_complete
        self._clock, self._compute, self._now, self._learned = clock, compute, now, learned
        self._ladder_views = ladders.by_table(ladders.views)
        self.page = ladders.page or PLAIN  # How the page looks.
        self._rated = frozenset[str]()  # Ladders that have a rating: none disappears.
        self._views: dict[str, tuple[reader.LadderView, float]] = {}
        """By ladder, its cached view, and the monotonic time in seconds until which it is used."""

    def of(self, index: IndexReader) -> "Questions":
        """The same, but answered from another reader of the same index."""
        found = copy(self)
        found._index = index
        return found

    async def ladders(self) -> bodies.LadderList:
        """All ladders with an event."""
        return bodies.LadderList(ladders=await self._index.ladders())

    async def ladder(self, ladder: str) -> bodies.LadderAnswer:
        """A ladder: its players, its parameters, and the distribution of its ratings."""
        view = await self._view(ladder)
        config, summary = self._config_of(ladder, view), view.summary
        views = self._ladder_views(ladder)
        return bodies.LadderAnswer(
            ladder=ladder, players=summary.players, listed=view.listed, season=summary.season,
            offset=summary.offset, completed_at=summary.completed_at,
            rating=to_builtins(config),
            distribution=[
                bodies.Bin(at_least=at, below=at + BIN, players=count)
                for at, count in view.bins.items()
            ],
            listing=views.listing, tiers=list(views.tiers),
        )  # fmt: skip

    async def player(self, ladder: str, player: str) -> bodies.RankedPlayer:
        """A player with the player's rank and percentile."""
        found = await self._of_ladder(ladder, self._index.player(ladder, player))
        if found is None or found.player.rounds == 0:
            raise await self._no_player(ladder, player)
        known, rank, listed = found
        percentile = None if rank is None else _percentile(rank, listed)
        views, unmet = self._ladder_views(ladder), None
        if rank is None:
            unmet = known.unmet(player, views, self._moment(known))
        tiers = _tiers_of(known, listed=rank is not None) if views.tiers else NO_TIERS
        return bodies.RankedPlayer(
            player=player, mu=known.mu, sigma=known.sigma, rating=known.rating,
            rounds=known.rounds, provisional=known.provisional, completed_at=known.completed_at,
            offset=known.offset, season=known.season, tier=tiers[0], previous_tier=tiers[1],
            rank=rank, listed=listed, percentile=percentile,
            unlisted=unmet and bodies.Unlisted(**unmet._asdict()),
        )  # fmt: skip

    async def lookup(self, ladder: str, players: Sequence[str]) -> bodies.LookupAnswer:
        """Players in the given order. A newcomer is returned with the initial belief."""
        rule = rule_of(await self._config(ladder))
        now_s = self._now() if self._ladder_views(ladder).tiers else None
        found = await self._of_ladder(ladder, self._index.players(ladder, players))
        if None in found:
            self.check_complete()  # a player without a record may have an event not read yet
        return bodies.LookupAnswer(
            players=[
                _newcomer(name, rule, now_s) if known is None or known.rounds == 0
                else _answer_of(name, known, now_s)
                for name, known in zip(players, found, strict=True)
            ]
        )  # fmt: skip

    async def history(
        self, ladder: str, player: str, limit: int, before: int | None
    ) -> bodies.HistoryAnswer:
        """A player's last changes before an offset, newest first."""
        stored = await self._of_ladder(ladder, self._index.history(ladder, player))
        if not stored and await self._index.players(ladder, [player]) == [None]:
            raise await self._no_player(ladder, player)
        older = [each for each in stored if before is None or each.offset < before]
        page = older[::-1][:limit]
        return bodies.HistoryAnswer(
            player=player, next=page[-1].offset if len(older) > len(page) else None,
            changes=[
                bodies.ChangeAnswer(
                    offset=each.offset, round_id=each.round_id, completed_at=each.completed_at,
                    cause=each.cause or ROUND_COMPLETED, rank=each.rank,
                    performance=each.performance, mu=each.mu, sigma=each.sigma,
                    previous_rating=each.previous_rating, rating=each.rating, rounds=each.rounds,
                )
                for each in page
            ],
        )  # fmt: skip

    async def card(self, ladder: str, player: str) -> str:
        """A player as an SVG image."""
        found = await self.player(ladder, player)
        history = (await self._index.history(ladder, player))[-bodies.MOST_SHOWN :]
        return draw_card(ladder, found, [each.rating for each in history], self.page)

    async def begun_by(self, ladder: str, start: str, limit: int) -> bodies.LookupAnswer:
        """The players whose ids begin with a text."""
        found = await self._of_ladder(ladder, self._index.begun_by(ladder, start, limit))
        now_s = self._now() if self._ladder_views(ladder).tiers else None
        return bodies.LookupAnswer(players=[_answer_of(*each, now_s) for each in found])

    async def rounds(
        self, ladder: str, player: str | None, limit: int, before: int | None
    ) -> bodies.RoundList:
        """The last rounds before an offset, of the ladder or of a player, newest first."""
        asked = self._index.rounds(ladder, limit, before, player)
        found, more = await self._of_ladder(ladder, asked)
        if player is not None and not found:
            known = (await self._index.players(ladder, [player]))[0]
            if known is None or known.rounds == 0:
                raise await self._no_player(ladder, player)
        return bodies.RoundList(rounds=[_past_round(each, player) for each in found], next=more)

    async def leaderboard(
        self, ladder: str, limit: int, cursor: str | None, around: str | None, recent: int = 0
    ) -> bodies.PageAnswer:
        """A page of the leaderboard: that at a cursor, or around a player, or else the first."""
        routes.check_page(cursor, around)
        if recent and limit > bodies.MOST_DETAILED:
            raise Refused(
                "bad-request", f"with `recent` it is {bodies.MOST_DETAILED} at most", "query.limit"
            )
        await self.check_ladder(ladder)
        page = self._page(ladder, limit, cursor, around, recent=recent)
        found = await self._of_ladder(ladder, page)
        if found is None:
            raise await self._not_listed(ladder, around or "")
        return _page_answer(found, self._ladder_views(ladder))

    async def _page(
        self, ladder: str, limit: int, cursor: str | None, around: str | None,
        season: int | None = None, recent: int = 0,
    ) -> reader.PageView | None:  # fmt: skip
        """A page at a cursor, or around a player, or the first; None if the player is not there."""
        if around is not None:
            return await self._index.around(ladder, around, limit, season, recent)
        return await self._index.page(ladder, routes.decode_cursor(cursor), limit, season, recent)

    # --- past seasons ---

    async def seasons(self, ladder: str, started: StartedSeasons) -> bodies.SeasonList:
        """The seasons of a ladder, and whether their standings are kept."""
        present = (await self._view(ladder)).summary.season
        kept = {each.season: each for each in await self._index.kept(ladder)}
        numbers = list(await started(ladder))
        if not numbers and present is not None and present not in kept:
            numbers = [present]
        numbers = sorted({*kept, *numbers})
        if any(each not in kept for each in numbers[:-1]):
            self.check_complete()  # one may be kept, and not be read yet
        return bodies.SeasonList(
            ladder=ladder,
            seasons=[_season(each, kept.get(each), runs=each == numbers[-1]) for each in numbers],
        )

    async def season(
        self, ladder: str, number: str, limit: int, cursor: str | None, around: str | None
    ) -> bodies.SeasonPageAnswer:
        """A page of the standings of a season: at a cursor, around a player, or the first."""
        routes.check_page(cursor, around)
        season = await self._kept_season(ladder, number)
        found = await self._page(ladder, limit, cursor, around, season.season)
        if found is None:
            raise Refused(
                "not-listed", f"{around!r} was not listed when season {season.season} ended: "
                "leave `around` out", "query.around",
            )  # fmt: skip
        return bodies.SeasonPageAnswer(
            season=season.season, ended_at=season.ended_at, listed=season.listed,
            rows=[
                bodies.SeasonRow(
                    rank=row.rank, player=row.player, rating=known.rating,
                    percentile=_percentile(row.rank, season.listed),
                    tier=None if known.placement is None else known.placement.tier,
                    rounds=known.rounds,
                )
                for row, known in zip(found.rows, found.players, strict=True)
                if known is not None
            ],
            next=routes.next_cursor(found.rows, found.more),
        )  # fmt: skip

    async def _kept_season(self, ladder: str, number: str) -> SeasonKept:
        """The season with this number. Raises Refused if its standings are not kept."""
        if not (number.isascii() and number.isdecimal() and len(number) <= MOST_DIGITS):
            raise Refused("bad-request", "give the number of a season", "path.season")
        await self.check_ladder(ladder)
        for each in await self._index.kept(ladder):
            if each.season == int(number):
                return each
        self.check_complete()
        raise Refused(
            "unknown-season", f"no standings of season {number} of ladder {ladder!r} are kept: "
            f"/v1/ladders/{ladder}/seasons lists those there are", "path.season",
        )  # fmt: skip

    # --- predictions ---

    async def predict(self, ladder: str, question: bodies.PredictQuestion) -> bodies.PredictAnswer:
        """The prediction of a round."""
        check_sides(question.sides, bodies.MOST_PLAYERS)
        players = [player for side in question.sides for player in side.players]
        config = await self._config(ladder)
        found = (await self.lookup(ladder, players)).players
        factor = question.variance_factor
        fitted = self._learned(ladder, config) if factor is None else None
        return await self._compute(
            lambda: prediction(config, question.sides, found, factor or 1.0, fitted)
        )

    async def balance(self, ladder: str, question: bodies.BalanceQuestion) -> bodies.PredictAnswer:
        """Even teams, and the prediction of their round."""
        config, asked = await self._config(ladder), (question.teams, question.groups)
        players = (await self.lookup(ladder, question.players)).players
        fitted = self._learned(ladder, config)
        return await self._compute(
            lambda: prediction(config, *balanced_sides(config, players, *asked), 1.0, fitted)
        )

    def _moment(self, known: IndexedPlayer) -> float:
        """The time at which to look at an unlisted player: never before the player left, even if
        the clock that decided so is ahead of this one."""
        until_s = known.until_s
        return max(self._now(), until_s) if math.isfinite(until_s) else self._now()

    async def check_ladder(self, ladder: str) -> None:
        """Raise Refused if there is no such ladder."""
        await self._cached_view(ladder)

    async def strangers(self, ladders: Collection[str], place: str) -> dict[str, Refused]:
        """The refusals of rounds of those of these ladders that have neither a table in the file
        nor a rating. `place` is that of the ladder in the request."""
        found = dict[str, Refused]()
        for each, near in (await self._new(ladders)).items():
            self.check_complete()
            why = (
                f"ladder {each!r} has no rating, and no table in the ladders file, which refuses "
                f"unknown_ladders: {f'write {near!r}, or ' if near else ''}give it a table"
            )
            found[each] = refused_record("unknown-ladder", why, place)
        return found

    async def misspelt(self, ladders: Iterable[str]) -> dict[str, str]:
        """Warnings about those of these ladders that are new, and have nearly the name of another
        one. At most MOST_DOUBTED are looked at."""
        found = dict[str, str]()
        with suppress(Incomplete, StoreTrouble, Denied):
            self.check_complete()
            found = await self._new(ladders, MOST_DOUBTED)
        text = "ladder {!r} is new: did you mean {!r}?".format
        return {each: text(each, near) for each, near in found.items() if near}

    async def _new(self, ladders: Iterable[str], most: int | None = None) -> dict[str, str]:
        """Those of these ladders (so many at most) that have neither a table in the file nor a
        rating, and of each the nearest name that is known, or none."""
        named = self._ladders.ladders
        new = {each for each in ladders if each and each not in named} - self._rated
        if not new:
            return {}
        self._rated = frozenset(await self._index.ladders())
        known = [*named, *self._rated] if len(named) + len(self._rated) <= MOST_COMPARED else []
        near = partial(difflib.get_close_matches, possibilities=known, n=1)
        return {each: "".join(near(each)) for each in sorted(new - self._rated)[:most]}

    # --- ladders and players that are missing ---

    async def _of_ladder(self, ladder: str, answer: Awaitable[T]) -> T:
        """Await the index's answer about a ladder. If the index has nothing of the ladder, raise
        Refused if it never had an event; otherwise AbsentLadder or Incomplete (status 503)."""
        try:
            return await answer
        except AbsentLadder:
            self._views.pop(ladder, None)
            await self._view(ladder)
            raise

    async def _view(self, ladder: str) -> reader.LadderView:
        found = await self._index.ladder(ladder)
        if found is None:
            self.check_complete()
            raise Refused(
                "unknown-ladder", f"no rating of ladder {ladder!r} has been published: "
                "/v1/ladders lists those there are", "path.ladder",
            )  # fmt: skip
        return found

    async def _cached_view(self, ladder: str) -> reader.LadderView:
        """The view of a ladder. It may be VIEW_CACHE_S old, because a ladder never disappears."""
        view, until_s = self._views.get(ladder, (None, 0.0))
        if view is None or self._clock() > until_s:
            view = await self._view(ladder)
            self._views[ladder] = view, self._clock() + VIEW_CACHE_S
        return view

    async def _config(self, ladder: str) -> RatingConfig:
        """The rating parameters of a ladder."""
        return self._config_of(ladder, await self._cached_view(ladder))

    def _config_of(self, ladder: str, view: reader.LadderView) -> RatingConfig:
        terms = self._ladders.find(ladder, view.summary.offset)
        if terms is None:
            raise Refused(
                "unknown-ladder", f"the ladders file does not name {ladder!r}: start `serve` with "
                "the file of the workers", "path.ladder",
            )  # fmt: skip
        return terms.rating

    async def _no_player(self, ladder: str, player: str) -> Refused:
        await self._view(ladder)
        self.check_complete()
        return Refused(
            "unknown-player", f"{player!r} has no round that counts on ladder {ladder!r}: "
            "players:lookup returns the belief of a newcomer", "path.player",
        )  # fmt: skip

    async def _not_listed(self, ladder: str, player: str) -> Refused:
        known = (await self._index.players(ladder, [player]))[0]
        if known is None or known.rounds == 0:
            return await self._no_player(ladder, player)
        why = _in_words(known.unmet(player, self._ladder_views(ladder), self._moment(known)))
        return Refused(
            "not-listed", f"{player!r} is not listed: {why}: leave `around` out", "query.around"
        )

    def check_complete(self) -> None:
        """Raise Incomplete if a missing player or ladder may have events that are not read yet."""
        if not self._is_complete():
            raise Incomplete


def _season(number: int, kept: SeasonKept | None, *, runs: bool) -> bodies.SeasonAnswer:
    if kept is None:
        return bodies.SeasonAnswer(
            season=number, started_at=None, ended_at=None, players=None, listed=None,
            standings="season-runs" if runs else "not-written",
        )  # fmt: skip
    return bodies.SeasonAnswer(
        season=number, started_at=kept.started_at, ended_at=kept.ended_at,
        players=kept.players, listed=kept.listed, standings="kept",
    )  # fmt: skip


Tiers = tuple[bodies.TierName, bodies.TierName]
NO_TIERS: Tiers = (UNSET, UNSET)


def _tiers_of(known: IndexedPlayer | None, *, listed: bool) -> Tiers:
    """The tier of a player of a ladder with tiers, and the one before the last event."""
    if known is None or known.placement is None or not listed:
        return None, None
    return known.placement.tier, known.placement.previous_tier


def _answer_of(name: str, known: IndexedPlayer, now_s: float | None) -> bodies.PlayerAnswer:
    """The answer about a player. Fields are given by position, which is faster: a lookup makes up
    to a thousand. `now_s`: the present Unix time if the ladder has tiers, else None."""
    tiers = NO_TIERS if now_s is None else _tiers_of(known, listed=known.until_s > now_s)
    return bodies.PlayerAnswer(
        name, known.mu, known.sigma, known.rating, known.rounds, known.provisional,
        known.completed_at, known.offset, known.season, *tiers,
    )  # fmt: skip


def _newcomer(name: str, rule: RatingRule, now_s: float | None) -> bodies.PlayerAnswer:
    mu, sigma = rule.initial_mu, rule.initial_sigma
    tier = UNSET if now_s is None else None
    return bodies.PlayerAnswer(
        player=name, mu=mu, sigma=sigma, rating=rule.rating(mu, sigma), rounds=0,
        provisional=rule.provisional_rounds > 0, completed_at=None, offset=None, season=None,
        tier=tier, previous_tier=tier,
    )  # fmt: skip


WHY_UNLISTED = {
    "unlisted": "the ladders file names it (unlisted)",
    "provisional": "provisional after {0.value} of {0.bound} rounds",
    "min_rounds": "{0.value} of {0.bound} rounds (min_rounds)",
    "idle_days": "{0.value:.1f} days without a round (idle_days is {0.bound:g})",
    "max_sigma": "sigma is {0.value:.1f} today (max_sigma is {0.bound:g})",
}
"""The reason why a player is not listed, by the rule that is not met."""


def _in_words(unmet: Unmet | None) -> str:
    return "the next event decides" if unmet is None else WHY_UNLISTED[unmet.rule].format(unmet)


def _percentile(rank: int, listed: int) -> float:
    return 100.0 * (listed - rank) / listed


def _page_answer(found: reader.PageView, views: Views) -> bodies.PageAnswer:
    rows, percentiles = list[bodies.Row](), views.listing.display == "percentile"
    for i, row in enumerate(found.rows):
        known = found.players[i] if found.players else None
        tier, previous = _tiers_of(known, listed=True) if views.tiers else NO_TIERS
        percentile = _percentile(row.rank, found.listed) if percentiles else UNSET
        sigma, rounds = (known.sigma, known.rounds) if known and found.recent else (UNSET, UNSET)
        rows.append(
            bodies.Row(
                rank=row.rank, player=row.player, rating=row.rating, tier=tier,
                previous_tier=previous, percentile=percentile, sigma=sigma, rounds=rounds,
                recent=[
                    bodies.RecentChange(each.completed_at, each.rank, each.rating)
                    for each in found.recent[i]
                ] if found.recent else UNSET,
            )
        )  # fmt: skip
    return bodies.PageAnswer(
        rows=rows, listed=found.listed, next=routes.next_cursor(found.rows, found.more)
    )


def _past_round(found: reader.PastRound, player: str | None) -> bodies.PastRound:
    """A round, with the best of its players, and with this one."""
    ordered = sorted(found.changes, key=lambda each: (each[1].rank is None, each[1].rank))
    shown = ordered[: bodies.MOST_SHOWN]
    shown += [each for each in ordered[bodies.MOST_SHOWN :] if each[0] == player]
    first = found.changes[0][1]
    return bodies.PastRound(
        offset=found.offset, round_id=first.round_id, completed_at=first.completed_at,
        players=[
            bodies.Participant(name, each.rank, each.previous_rating, each.rating)
            for name, each in shown
        ],
        more=len(shown) < len(ordered) or len(ordered) >= reader.MOST_IN_ROUND,
    )  # fmt: skip
