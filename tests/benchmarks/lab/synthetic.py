"""Synthetic seasons by seed (paper, section 6.1): skills are normal (1500, 350), a performance is
logistic around the skill with deviation 200, and after a round the skills of its players change by
normal steps of 35. The paper may mean all players; but 1,000 of them in 15,000 rounds would spread
over thousands of points, and be far more predictable than the 83 % that it reports."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.contract.events import Round
from stream_rater.evaluation.season import NO_NAMES, Session
from stream_rater.replay.pool import ONE_WAVE
from stream_rater.rounds.batch import RoundBatch

SKILL, SPREAD, PERFORMANCE, CHANGE = 1500.0, 350.0, 200.0, 35.0
DAY_S = 86_400
BEGIN_S = 1_600_000_000


@dataclass(frozen=True, slots=True)
class Kind:
    """The size of a season: its players, its rounds, and the players in each round."""

    players: int
    rounds: int
    per_round: int


SMALL = Kind(players=1_000, rounds=15_000, per_round=5)
LARGE = Kind(players=10_000, rounds=50, per_round=10_000)


def season(kind: Kind, seed: int) -> Iterator[Session]:
    """Yield the sessions of a season. Each has one round, and rounds are a day apart."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(SKILL, SPREAD, kind.players)
    scale = PERFORMANCE * math.sqrt(3.0) / math.pi
    for number in range(kind.rounds):
        rows = rng.permutation(kind.players)[: kind.per_round]
        performance = rng.logistic(skill[rows], scale)
        skill[rows] += rng.normal(0.0, CHANGE, len(rows))
        order = np.argsort(-performance)
        yield session(rows[order], kind.players, number)


def session(rows: Ints, players: int, number: int) -> Session:
    """A session of one round, in which the players in these rows came first, second, and so on."""
    entries = len(rows)
    size = np.array([entries])
    rounds = RoundBatch(
        heads=[Round(round_id=f"r{number}", ladder="synthetic", completed_at="")],
        time=np.array([BEGIN_S + number * DAY_S]),
        weight=np.ones(1),
        ceiling=np.full(1, np.inf),
        config_index=np.zeros(1, np.int64),
        unknown=np.zeros(1, np.bool_),
        entries=size,
        sizes=size,
        place=np.arange(1, entries + 1, dtype=np.int32),
        members=np.ones(entries, np.int64),
        share=np.ones(entries),
        names=NO_NAMES,
    )
    return Session("synthetic", players, rows, rounds, ONE_WAVE, np.array([number]))
