"""One small interface for every rating system: `estimate` for stage 1, `update` for stage 2.

The estimator calls `estimate` with a ladder's configuration. What stage 2 needs of that
configuration is in a `Law`, which travels with the evidence, so that an updater rates by what the
estimator rated by, whatever its own files say.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.rating import belief, book, elo_r, performance
from stream_rater.rating.model import Beliefs, Evidence, Wave
from stream_rater.rating.parameters import (
    Climbing,
    Codeforces,
    EloMMR,
    EloR,
    Evolving,
    MinusSigma,
    RatingConfig,
    fingerprint,
)
from stream_rater.rating.rounding import single


class Law(msgspec.Struct, frozen=True, array_like=True):
    """A ladder's parameters in the form stage 2 uses, and how its ratings are shown."""

    system: str
    kernel: int
    """KERNEL_VERSION of the stage 1 that computed the evidence."""
    config: str
    """Fingerprint of the configuration."""
    rho: float
    """Inverse momentum; infinite is written as -1 (JSON and msgpack readers differ on infinity)."""
    kept: int
    initial_mu: float
    initial_sigma: float
    shown_sigmas: float
    """The displayed rating is mu - shown_sigmas * (sigma - shown_sigma_offset), not below floor."""
    shown_sigma_offset: float
    floor: float | None
    provisional_rounds: int

    @property
    def momentum(self) -> float:
        """rho, infinite where that is meant."""
        return math.inf if self.rho < 0.0 else self.rho

    def rating(self, mu: Any, sigma: Any) -> Any:
        """The displayed number for mu and sigma (floats or arrays)."""
        shown = mu - self.shown_sigmas * (sigma - self.shown_sigma_offset)
        if self.floor is None:
            return shown
        # A float stays one: events are encoded from it, and numpy's own floats are not.
        at_least = max if isinstance(shown, float) else np.maximum
        return at_least(shown, self.floor)


def ratings(laws: Sequence[Law], law: Ints, mu: Floats, sigma: Floats) -> Floats:
    """The same for each of many; law[i] is the index of the law of the i-th."""
    sigmas = np.array([each.shown_sigmas for each in laws])[law]
    offset = np.array([each.shown_sigma_offset for each in laws])[law]
    floor = np.array([-math.inf if each.floor is None else each.floor for each in laws])[law]
    at_least: Floats = np.maximum(mu - sigmas * (sigma - offset), floor)
    return at_least


@lru_cache(maxsize=1000)
def law_of(config: RatingConfig) -> Law:
    """What stage 2 and the events need of a configuration."""
    sigmas, offset = 2.0, config.limits[1] if isinstance(config, Evolving | EloR) else 0.0
    without_sigma = isinstance(config, Codeforces | Climbing)
    if config.display == "mu" or (config.display is None and without_sigma):
        sigmas, offset = 0.0, 0.0
    elif isinstance(config.display, MinusSigma):
        sigmas, offset = config.display.minus_sigma, 0.0
    return Law(
        system=str(config.__struct_config__.tag),
        kernel=KERNEL_VERSION,
        config=fingerprint(config),
        rho=_rho(config),
        kept=config.kept,
        initial_mu=_held(config, config.initial_mu),
        initial_sigma=_held(config, config.initial_sigma),
        shown_sigmas=sigmas,
        shown_sigma_offset=offset,
        floor=config.floor,
        provisional_rounds=config.provisional_rounds,
    )


def _held(config: RatingConfig, x: float) -> float:
    """x as a belief holds it: a float32 where there are records."""
    return single(x) if config.kept else x


def _rho(config: RatingConfig) -> float:
    if not isinstance(config, EloMMR):
        return 0.0
    return -1.0 if config.rho == "inf" else config.momentum


def estimate(config: RatingConfig, wave: Wave) -> Evidence:
    """Stage 1 for every player of a wave whose rounds share this configuration."""
    if isinstance(config, EloR):
        return elo_r.estimate(config, wave)
    if not isinstance(config, EloMMR):
        from stream_rater.rating import memoryless  # all baselines: 13 ms that few need

        return memoryless.estimate(config, wave)
    weight_limit, sigma_limit = config.limits
    evidence: Evidence = performance.estimate(
        wave.round_starts, wave.weight, wave.ceiling, wave.time, wave.place, wave.entry_starts,
        wave.share, wave.mu, wave.sigma, wave.rounds, wave.last_time,
        weight_limit, sigma_limit, config.drift_per_day,
        np.array(config.newcomer_weights, dtype=np.float64),
        config.initial_mu, 1.0 if config.ties == "full" else 0.5,
    )  # fmt: skip
    return evidence


def update(beliefs: Beliefs, rows: Ints, evidence: Evidence, laws: list[Law], law: Ints) -> None:
    """Stage 2, in place, for the players in `rows`; law[i] is the index of row i's law."""
    ways = [_WAYS.get(each.system, _replace) for each in laws]
    rho = np.array([each.momentum for each in laws])[law]
    kept = np.array([each.kept for each in laws], dtype=np.int64)[law]
    for way in set(ways):
        if len(set(ways)) == 1:
            way(beliefs, rows, evidence, rho, kept)
        else:
            own = np.array([each is way for each in ways])[law]
            way(beliefs, rows[own], evidence[own], rho[own], kept[own])


def _update_mmr(beliefs: Beliefs, rows: Ints, evidence: Evidence, rho: Floats, kept: Ints) -> None:
    assert not kept.any() if beliefs.in_full else kept.all(), "codes are of those kept, no others"
    belief.update(beliefs.header, beliefs.factors, rows, evidence, rho, kept)


def _update_r(beliefs: Beliefs, rows: Ints, evidence: Evidence, _: Floats, kept: Ints) -> None:
    elo_r.update(beliefs.header, beliefs.factors, rows, evidence, kept)


def _replace(beliefs: Beliefs, rows: Ints, evidence: Evidence, _: Floats, kept: Ints) -> None:
    belief.replace(beliefs.header, rows, evidence, kept)


_WAYS = {"elo-mmr": _update_mmr, "elo-r": _update_r}
"""Stage 2 of systems whose beliefs keep logistic factors; that of all others only writes down."""


def note_round(beliefs: Beliefs, rows: Ints, offset: Ints, time: Ints) -> None:
    """Book-keeping of a round just rated: its source offset, its time, one round more."""
    book.note(beliefs.header, rows, offset, time)
