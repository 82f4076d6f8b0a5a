"""Makes the `rating-changed` events of rounds, seeds and resets without a stream, and makes
standings. The fields and values equal those of the service's events, because both come from the
same beliefs. Only the order differs: the service writes the events of a round shard by shard."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec
import numpy as np
from msgspec import structs

from stream_rater.columns import arrays, ranges
from stream_rater.config.views import Views, listed, tier_of
from stream_rater.contract import season_ended
from stream_rater.contract.events import CorrectionCause, RatingChanged, Round, joined
from stream_rater.rating import model, seasons
from stream_rater.rating.stages import RatingRule, ratings
from stream_rater.replay.pool import Pool
from stream_rater.replay.sequential import Rated, RatedBatch, Seeded


def changes_of(batch: RatedBatch) -> Iterator[RatingChanged]:
    """Yield one event for each player whose rating a seed or a reset changed, in the order of the
    seeds; then one for each player of each round, in the order of the rounds and, within a round,
    of the places."""
    for seeded in batch.seeded:
        yield from _seed_events(seeded)
    by_round: dict[int, Sequence[RatingChanged]] = {}
    for rated in batch.rated:
        events = [*_events(rated, batch.log.rounds.offset[rated.chosen])]
        starts = ranges.bounds(rated.rounds.sizes).tolist()
        for i, number in enumerate(rated.chosen.tolist()):
            by_round[number] = events[starts[i] : starts[i + 1]]
    for number in sorted(by_round):
        yield from by_round[number]


def numbers_of(rated: Rated) -> arrays.Floats:
    """(P, 7) the numbers of each player for `rating_changed`: mu and sigma after the round, mu and
    sigma before it, the performance, the rating after the round, and the rating before it."""
    rule, same = [rated.rule], np.zeros(len(rated.rows), np.int64)
    _, evidence, after, published = rated.result
    return np.column_stack((
        after.mu, after.sigma, published.mu, published.sigma, evidence[:, model.PERFORMANCE],
        ratings(rule, same, after.mu, after.sigma),
        ratings(rule, same, published.mu, published.sigma),
    ))  # fmt: skip


def _events(rated: Rated, offsets: arrays.Ints) -> Iterator[RatingChanged]:
    """Yield the events of R rounds of a ladder, which are at these (R,) offsets."""
    rounds = rated.rounds
    rows = zip(
        np.repeat(np.arange(len(rounds)), rounds.sizes).tolist(), rounds.names.texts(),
        np.repeat(rounds.place, rounds.members).tolist(), numbers_of(rated).tolist(),
        (rated.result.wave.rounds + 1).tolist(), strict=True,
    )  # fmt: skip
    for i, player, place, row, played in rows:
        head = rounds.heads[i]
        yield rating_changed(
            head.ladder, head.round_id, player, head.completed_at, place, row, played,
            int(offsets[i]), rated.rule,
        )  # fmt: skip


def _seed_events(seeded: Seeded) -> Iterator[RatingChanged]:
    seed, pool, rule, (chosen, rows, published) = seeded
    header = pool.headers(rows)
    numbers = np.column_stack((header["mu"], header["sigma"], *published)).tolist()
    names, played = seed.names.take(chosen).texts(), header["rounds"].tolist()
    for player, values, rounds in zip(names, numbers, played, strict=True):
        yield seed_changed(seed.kind, seed.head, player, values, rounds, seed.offset, rule)


def seed_changed(
    kind: str, head: Round, player: str, values: Sequence[float], rounds: int, offset: int,
    rule: RatingRule,
) -> RatingChanged:  # fmt: skip
    """Make the event of one player whose rating a seed or a reset changed. `values` are mu and
    sigma after it and those that were last published. `rounds` is the number of rounds that stand
    behind the rating."""
    mu, sigma, previous_mu, previous_sigma = values
    ratings_now = rule.rating(mu, sigma), rule.rating(previous_mu, previous_sigma)
    event = rating_changed(
        head.ladder, head.round_id, player, head.completed_at, model.DID_NOT_FINISH,
        (mu, sigma, previous_mu, previous_sigma, 0.0, *ratings_now), rounds, offset, rule,
    )  # fmt: skip
    cause = CorrectionCause(cause=kind, offset=offset, round_id=head.round_id)
    return structs.replace(event, performance=None, correction=cause)


def rating_changed(
    ladder: str, round_id: str, player: str, completed_at: str, place: int,
    numbers: Sequence[float], rounds: int, offset: int, rule: RatingRule,
) -> RatingChanged:  # fmt: skip
    """Make the event of one player in one round. `numbers` is a row of `numbers_of`. `rounds` is
    the number of the player's rounds, including this one, whose offset is `offset`."""
    mu, sigma, previous_mu, previous_sigma, performance, rating, previous_rating = numbers
    return RatingChanged(
        event_id=joined(ladder, round_id, player), ladder=ladder, player=player,
        round_id=round_id, completed_at=completed_at,
        rank=None if place == model.DID_NOT_FINISH else place, mu=mu, sigma=sigma,
        previous_mu=previous_mu, previous_sigma=previous_sigma, performance=performance,
        rating=rating, previous_rating=previous_rating, rounds=rounds,
        provisional=rounds < rule.provisional_rounds, offset=offset, season=rule.season,
    )  # fmt: skip


# --- the standings of a season --------------------------------------------------------------------


class Standings:
    """The listed players of a ladder in order: by displayed rating, then by id. It is a function of
    its arguments alone, and so are the bytes of its pages."""

    def __init__(
        self, ladder: str, season: int, pool: Pool, rule: RatingRule, views: Views, offset: int,
        at_s: float,
    ) -> None:  # fmt: skip
        """`pool`: the beliefs when the season ended, at this offset. `rule`: with the seasons that
        had started, by which the beliefs are drawn. `at_s`: the time for which the listing holds,
        in Unix seconds."""
        self.ladder, self.season = ladder, season
        rows = pool.played()
        self.players = len(rows)
        """The number of players with at least one counted round."""
        header = pool.headers(rows)
        seasons.draw_headers(rule, header)
        names = pool.names.take(rows).texts()
        is_listed = listed(views, header, names, at_s, offset)
        header, rows = header[is_listed], rows[is_listed]
        names = pool.names.take(rows).texts()
        rating: arrays.Floats = rule.rating(header["mu"], header["sigma"])
        by = rating.tolist()
        order = np.array(sorted(range(len(by)), key=lambda i: (-by[i], names[i])), np.int64)
        header, self._rating = header[order], rating[order]
        self._names = [names[i] for i in order.tolist()]
        self._mu, self._sigma = header["mu"], header["sigma"]
        self._rounds: arrays.Ints = header["rounds"].astype(np.int64)
        self._rank: arrays.Ints = 1 + np.searchsorted(-self._rating, -self._rating)
        self._tier = [tier_of(views, each) for each in self._rating.tolist()]

    def __len__(self) -> int:
        return len(self._names)

    @property
    def pages(self) -> int:
        """The number of pages: at least one, which may have no player."""
        return max(1, -(-len(self) // season_ended.PLAYERS_PER_PAGE))

    @cached_property
    def digest(self) -> str:
        columns = self._rating, self._mu, self._sigma, self._rounds
        names = msgspec.msgpack.encode((self.ladder, self.season, self._tier, self._names))
        digest = hashlib.sha256()
        for part in (*(np.ascontiguousarray(each).tobytes() for each in columns), names):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest()

    def page(self, number: int) -> Iterator[season_ended.SeasonRecord]:
        """Yield the records of the players of a page, the best first, and then its mark."""
        first = number * season_ended.PLAYERS_PER_PAGE
        for i in range(first, min(first + season_ended.PLAYERS_PER_PAGE, len(self))):
            yield self._standing(i)
        yield season_ended.PageWritten(
            ladder=self.ladder, season=self.season, page=number, pages=self.pages,
            digest=self.digest,
        )  # fmt: skip

    def _standing(self, i: int) -> season_ended.Standing:
        listed, rank = len(self), int(self._rank[i])
        return season_ended.Standing(
            ladder=self.ladder, season=self.season, player=self._names[i], rank=rank,
            listed=listed, percentile=100.0 * (listed - rank) / listed, tier=self._tier[i],
            rating=float(self._rating[i]), mu=float(self._mu[i]), sigma=float(self._sigma[i]),
            rounds=int(self._rounds[i]),
        )  # fmt: skip

    def summary(
        self, offset: int, started_at: str | None, ended_at: str
    ) -> season_ended.SeasonKept:
        return season_ended.SeasonKept(
            ladder=self.ladder, season=self.season, started_at=started_at, ended_at=ended_at,
            offset=offset, players=self.players, listed=len(self), pages=self.pages,
        )  # fmt: skip
