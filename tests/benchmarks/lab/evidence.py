"""Computes the experiments of the Elo-MMR paper: accuracy (Table 2), time (Table 3), farming
(Figure 2) and rounds split into small ones (Figure 3). Each system is tuned on the first TRAIN, a
fraction, of a data set: once, by pair inversion, whereas the paper tunes for each measure. The most
probable parameters are chosen, since those that fit a short first part best follow its noise. All
systems are scored on the rest, on the same rounds and outcomes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from msgspec import structs

from stream_rater.evaluation.accuracy import averages
from stream_rater.evaluation.bootstrap import difference
from stream_rater.evaluation.comparison import outcomes_alike, warm
from stream_rater.evaluation.evaluation import MOST_SIDES, SeasonScores, evaluate, trained
from stream_rater.evaluation.fits import Fit, OwnSystem
from stream_rater.evaluation.measures import Difference
from stream_rater.evaluation.season import Session, before
from stream_rater.evaluation.shared_scores import Counted, counted
from stream_rater.evaluation.spaces import SPACES, configuration, start
from stream_rater.evaluation.tuning import at_ends, search
from stream_rater.rating.parameters import EloMMR, RatingConfig, Topcoder
from stream_rater.replay.pool import Pool
from stream_rater.rounds.batch import NO_SCORES, NO_SEATS
from tests.benchmarks.lab import game
from tests.benchmarks.lab.game import Kind, in_blocks, singly, split
from tests.benchmarks.lab.timing import timed

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
    """A copy of a session of one round without teams, in which this row's player came last."""
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
    return [rating for _, rating in _played(sessions, row, config, None) if rating is not None]


def farmed(
    sessions: Iterable[Session], row: int, config: RatingConfig, threshold: float
) -> list[Session]:
    """The season with the farmer's results. Each depends on the rating after earlier rounds."""
    return [session for session, _ in _played(sessions, row, config, threshold)]


def _played(
    sessions: Iterable[Session], row: int, config: RatingConfig, threshold: float | None
) -> Iterator[tuple[Session, float | None]]:
    """Each session as played, and the player's mu after it; None if the player is absent."""
    pool = Pool(config)
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
            rating = float(pool.headers(np.array([row]))["mu"][0])
        yield session, rating if took_part else None


def compare(
    sessions: Sequence[Session], row: int, systems: Mapping[str, RatingConfig],
    threshold: float = THRESHOLD, schedule: RatingConfig | None = None,
) -> dict[str, Careers]:  # fmt: skip
    """Both careers by each system. By default, Topcoder's ratings decide when to come last."""
    season = until(singly(sessions), row, HONEST + FARMED + HARVEST)
    with_farmer = farmed(season, row, schedule or Topcoder(), threshold)
    return {
        name: Careers(career(season, row, config), career(with_farmer, row, config))
        for name, config in systems.items()
    }


# --- farming --------------------------------------------------------------------------------------

TRAIN = 0.1
MEASURE = "pair_inversion"  # The measure to tune by; it counts newcomers, too (synth-large).
REFERENCE = "elo-mmr"  # The name of the system that the others are compared with.
SEED = 1

FARMING_SYSTEMS: dict[str, RatingConfig] = {
    "topcoder": Topcoder(),
    "elo-mmr": EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=1.0),
}
"""The default parameters of the paper, which calls this Elo-MMR "Elo-MMR(1)"."""

MADE_UP_FARM = Kind(players=200, rounds=120, per_round=200)
MADE_UP_THRESHOLD = 2200.0


@dataclass(frozen=True, slots=True)
class Effort:
    rounds: int | None  # So many rounds of each data set are used, from its first on; None for all.
    trials: int  # The number of configurations tried for each system and data set.
    sizes: tuple[int, ...]  # The numbers of players in a round, for Figure 3.
    synthetic: Mapping[str, Kind]


THE_PAPERS = {"synth-small": game.SMALL, "synth-large": game.LARGE}
"""The synthetic seasons for which the paper has figures."""

FULL = Effort(None, 150, (5, 10, 20, 50, 100, 200, 500, 1000), THE_PAPERS)
QUICK = Effort(
    80, 6, (5, 20),
    {"synth-small": Kind(60, 200, 5), "synth-large": Kind(150, 20, 150)},
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DataSet:
    name: str
    sessions: Sequence[Session]

    @property
    def rounds(self) -> int:
        return sum(len(session.rounds) for session in self.sessions)

    def sizes(self) -> list[int]:
        return [int(size) for session in self.sessions for size in session.rounds.entries]


@dataclass(frozen=True, slots=True)
class Entry:
    """The results of one system on one data set."""

    data: str
    system: str
    outcome: SeasonScores
    measures: Mapping[str, float | None]
    against: Difference | None  # Pair inversion minus the reference's; None where it is undefined.
    of: Counted  # The counts of the pairs and rounds that are scored, which all systems share.
    at_ends: tuple[str, ...] = ()  # The parameters that ended at an end of their range.


Say = Callable[[str], None]


def made_up(effort: Effort) -> list[DataSet]:
    return [
        DataSet(name, list(in_blocks(game.season(kind, SEED))))
        for name, kind in effort.synthetic.items()
    ]


def first_guess(system: str) -> RatingConfig:
    return configuration(system, start(SPACES[system]))


class Tuned(NamedTuple):
    config: RatingConfig
    at_ends: tuple[str, ...]  # The parameters that ended at an end of their range.


def tuned(data: DataSet, system: str, trials: int, executor: Executor | None = None) -> Tuned:
    """Tune on the first part of a data set. `executor` and the errors are those of `search`."""
    first = before(data.sessions, trained(data.rounds, TRAIN))
    problem = Fit(OwnSystem(system).on(first), first, MEASURE)
    point = search(problem, trials, executor)
    return Tuned(problem.config(point), at_ends(problem.space, point))


def accuracy(
    data: DataSet, systems: Sequence[str], effort: Effort, executor: Executor | None, say: Say
) -> list[Entry]:
    """Every system on a data set (Tables 2 and 3). `executor` and the errors are as in `search`."""
    found: dict[str, Tuned] = {}
    for system in systems:
        say(f"{data.name}: {system}")
        found[system] = tuned(data, system, effort.trials, executor)
    played = [_evaluated(data, each.config) for each in found.values()]
    outcomes = dict(zip(found, outcomes_alike(played), strict=True))
    base = outcomes.get(REFERENCE)
    return [
        Entry(
            data.name,
            system,
            outcome,
            averages(outcome.scored(TRAIN)),
            None
            if base is None or outcome is base
            else difference(outcome.scored(TRAIN), base.scored(TRAIN), MEASURE),
            counted(outcome.scored(TRAIN), draws=outcome.draws),
            found[system].at_ends,
        )
        for system, outcome in outcomes.items()
    ]


def _evaluated(data: DataSet, config: RatingConfig) -> SeasonScores:
    """Evaluate a season with one configuration; compiling kernels is not in the time."""
    warm(config, data.sessions, most_sides=MOST_SIDES)
    return timed(lambda: evaluate(data.sessions, config))


def sizes(
    data: DataSet, configs: Mapping[str, RatingConfig], effort: Effort, say: Say
) -> dict[str, list[float | None]]:
    """The pair inversion, in %, of each system by size of rounds (Figure 3)."""
    found: dict[str, list[float | None]] = {system: [] for system in configs}
    for size in effort.sizes:
        rng = np.random.default_rng(SEED)
        small = [split(session, size, rng) for session in data.sessions]
        for system, config in configs.items():
            say(f"{data.name}, rounds of {size}: {system}")
            scores = evaluate(small, config, most_sides=0, draws=False).scored(TRAIN)
            found[system].append(averages(scores)[MEASURE])
    return found


def farm(data: DataSet, row: int, threshold: float) -> dict[str, Careers]:
    """The honest and the farmed career of the player in this row by each system, for Figure 2."""
    return compare(data.sessions, row, FARMING_SYSTEMS, threshold)


def made_up_farm() -> tuple[DataSet, int]:
    """A synthetic season for Figure 2, and the row of its best player."""
    sessions = list(game.season(MADE_UP_FARM, 3))  # one round each
    places = np.zeros(MADE_UP_FARM.players)
    for session in sessions:
        places[session.rows] += np.arange(len(session.rows))
    return DataSet("made up", sessions), int(np.argmin(places))


def plain(data: DataSet) -> bool:
    """Whether a data set has no teams. Rounds with teams cannot be split."""
    return all(len(session.rounds.place) == len(session.rounds.share) for session in data.sessions)
