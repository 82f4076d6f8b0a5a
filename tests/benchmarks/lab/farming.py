"""Volatility farming (paper, section 5.1, Figure 2): a strong player plays HONEST rounds, comes
last in the next FARMED ones whenever the Topcoder rating is above a threshold, then HARVEST real
ones. Each system rates both careers: does losing on purpose gain?"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from stream_rater.config.ladders import Ladder
from stream_rater.evaluation.season import Session
from stream_rater.rating.parameters import RatingConfig, Topcoder
from stream_rater.replay.pool import Pool
from stream_rater.rounds.batch import NO_SCORES, NO_SEATS
from tests.benchmarks.lab.dealt import singly

HONEST, FARMED, HARVEST = 45, 45, 15
THRESHOLD = 2975.0  # The paper's threshold; the ratings of its player, tourist, are near it.


@dataclass(frozen=True, slots=True)
class Careers:
    """The ratings (mu) after each of the player's rounds, in the honest and the farmed career."""

    honest: list[float]
    farmed: list[float]

    @property
    def gain(self) -> float:
        """The farmed rating minus the honest one after the last round, in points."""
        return self.farmed[-1] - self.honest[-1]


def last(session: Session, row: int) -> Session:
    """A session of one round without teams, in which this row's player finished last."""
    rounds = session.rounds
    assert len(rounds) == 1, "a session of one round"
    assert len(rounds.place) == len(rounds.share), "a round with teams cannot be farmed"
    at = int(np.flatnonzero(session.rows == row)[0])
    end = int(np.count_nonzero(rounds.place))
    to = end - 1 if at < end else end
    order = np.insert(np.delete(np.arange(len(session.rows)), at), to, at)
    place = rounds.place[order]
    place[to] = rounds.place.max() + 1
    return replace(
        session,
        rows=session.rows[order],
        rounds=structs.replace(
            rounds, place=place, share=rounds.share[order], seat=NO_SEATS, score=NO_SCORES
        ),
    )


def until(sessions: Iterable[Session], row: int, rounds: int) -> list[Session]:
    """The sessions of a season up to the one in which the player has played `rounds` rounds."""
    kept, played = [], 0
    for session in sessions:
        kept.append(session)
        played += int(row in session.rows)
        if played == rounds:
            break
    return kept


def career(sessions: Iterable[Session], row: int, config: RatingConfig) -> list[float]:
    """The player's mu after each of the player's rounds."""
    return [rating for _, rating in _career(sessions, row, config, None)]


def farmed(
    sessions: Iterable[Session], row: int, config: RatingConfig, threshold: float
) -> list[Session]:
    """The season with the farmer's results, each by the rating after the earlier ones."""
    return [session for session, _ in _played(sessions, row, config, threshold)]


def _career(
    sessions: Iterable[Session], row: int, config: RatingConfig, threshold: float | None
) -> Iterator[tuple[Session, float]]:
    """Yield the sessions in which the player took part, with the player's mu after each."""
    for session, rating in _played(sessions, row, config, threshold):
        if rating is not None:
            yield session, rating


def _played(
    sessions: Iterable[Session], row: int, config: RatingConfig, threshold: float | None
) -> Iterator[tuple[Session, float | None]]:
    """Each session as played, and the player's mu after it (None: absent); may farm."""
    pool = Pool(Ladder(rating=config))
    rounds, rating = 0, config.initial_mu
    for session in sessions:
        took_part = bool(np.any(session.rows == row))
        if took_part:
            farming = HONEST <= rounds < HONEST + FARMED
            if threshold is not None and farming and rating > threshold:
                session = last(session, row)
            rounds += 1
        pool.make_room(session.players)
        for each in session.seeds:
            each.apply(pool)
        pool.rate_rows(session.rounds, session.rows, session.waves, session.numbers)
        if took_part:
            rating = pool.mu(row)
        yield session, rating if took_part else None


def compare(
    sessions: Sequence[Session], row: int, systems: Mapping[str, RatingConfig],
    threshold: float = THRESHOLD, schedule: RatingConfig | None = None,
) -> dict[str, Careers]:  # fmt: skip
    """Both careers by each system; `schedule`'s ratings, Topcoder's, say when to come last."""
    season = until(singly(sessions), row, HONEST + FARMED + HARVEST)
    with_farmer = farmed(season, row, schedule or Topcoder(), threshold)
    return {
        name: Careers(career(season, row, config), career(with_farmer, row, config))
        for name, config in systems.items()
    }
