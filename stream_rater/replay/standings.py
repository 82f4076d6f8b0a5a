"""The standings of a ladder at one place of the log: its listed players, the best first."""

from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.config.views import Views, listed, tier_of
from stream_rater.contract import season_ended
from stream_rater.rating import seasons
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.pool import Pool


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
        is_listed = listed(views, header, at_s, offset)
        header, rows = header[is_listed], rows[is_listed]
        names = pool.names.take(rows).texts()
        rating: Floats = rule.rating(header["mu"], header["sigma"])
        by = rating.tolist()
        order = np.array(sorted(range(len(by)), key=lambda i: (-by[i], names[i])), np.int64)
        header, self._rating = header[order], rating[order]
        self._names = [names[i] for i in order.tolist()]
        self._mu, self._sigma = header["mu"], header["sigma"]
        self._rounds: Ints = header["rounds"].astype(np.int64)
        self._rank: Ints = 1 + np.searchsorted(-self._rating, -self._rating)
        self._tier = [tier_of(views, each) for each in self._rating.tolist()]

    def __len__(self) -> int:
        return len(self._names)

    @property
    def pages(self) -> int:
        """The number of pages: at least one, which may have no player."""
        return max(1, -(-len(self) // season_ended.PLAYERS_PER_PAGE))

    @cached_property
    def digest(self) -> str:
        """A digest of all standings."""
        columns = self._rating, self._mu, self._sigma, self._rounds
        names = msgspec.msgpack.encode((self.ladder, self.season, self._tier, self._names))
        return season_ended.digest_of(
            [*(np.ascontiguousarray(each).tobytes() for each in columns), names]
        )

    def page(self, number: int) -> Iterator[season_ended.Message]:
        """Yield the records of the players of a page, the best first, and then its mark."""
        first = number * season_ended.PLAYERS_PER_PAGE
        for i in range(first, min(first + season_ended.PLAYERS_PER_PAGE, len(self))):
            yield season_ended.message_of(self._standing(i))
        yield season_ended.message_of(
            season_ended.PageWritten(
                ladder=self.ladder, season=self.season, page=number, pages=self.pages,
                digest=self.digest,
            )
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
        """The summary of the season, which ended at this offset."""
        return season_ended.SeasonKept(
            ladder=self.ladder, season=self.season, started_at=started_at, ended_at=ended_at,
            offset=offset, players=self.players, listed=len(self), pages=self.pages,
        )  # fmt: skip
