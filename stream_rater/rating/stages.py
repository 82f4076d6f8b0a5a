"""Offers one interface for every rating system: `estimate` for stage 1, `update` for stage 2.

The estimator calls `estimate` with a ladder's configuration. The parameters that stage 2 needs are
in a `RatingRule`, which is sent with the evidence. So an updater rates by the estimator's
configuration, whatever its own files say.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.rating import levels, model
from stream_rater.rating.elo_mmr import belief
from stream_rater.rating.elo_mmr.belief import Posteriors, RoundStamps
from stream_rater.rating.factor import single
from stream_rater.rating.model import Beliefs, Evidence, Wave
from stream_rater.rating.parameters import SYSTEMS, RatingConfig, Season, fingerprint
from stream_rater.rating.systems import common
from stream_rater.rating.systems.elo_mmr import EloMMR, variances_of


class RatingRule(msgspec.Struct, frozen=True, array_like=True):
    """The parameters of a ladder that stage 2 needs, and how the ladder's ratings are displayed."""

    system: str
    kernel: int  # The KERNEL_VERSION of the stage 1 that computed the evidence.
    config: str  # The fingerprint of the configuration.
    rho: float
    """The inverse momentum; -1 stands for infinity, which JSON and MessagePack readers treat
    differently."""
    kept: int
    initial_mu: float
    initial_sigma: float
    shown_sigmas: float
    """The displayed rating is mu - shown_sigmas * (sigma - shown_sigma_offset), at least
    `floor`."""
    shown_sigma_offset: float
    floor: float | None
    provisional_rounds: int
    seasons: tuple[Season, ...] = ()
    """The seasons that have started on the ladder, in order. The parts that older releases write
    end before this field."""

    @property
    def momentum(self) -> float:
        """The inverse momentum, with infinity."""
        return math.inf if self.rho < 0.0 else self.rho

    @property
    def season(self) -> int | None:
        """The number of the ladder's present season; None if no season has started."""
        return self.seasons[-1].number if self.seasons else None

    def rating(self, mu: Any, sigma: Any) -> Any:
        """The displayed rating for mu and sigma (floats or arrays)."""
        shown = mu - self.shown_sigmas * (sigma - self.shown_sigma_offset)
        if self.floor is None:
            return shown
        # Events are encoded from Python floats, so a float must not become a numpy float.
        at_least = max if isinstance(shown, float) else np.maximum
        return at_least(shown, self.floor)


def ratings(rules: Sequence[RatingRule], rule: Ints, mu: Floats, sigma: Floats) -> Floats:
    """(n,) the displayed ratings for (n,) mu and sigma; rule[i] is the index of the i-th player's
    rule."""
    sigmas = np.array([each.shown_sigmas for each in rules])[rule]
    offset = np.array([each.shown_sigma_offset for each in rules])[rule]
    floor = np.array([-math.inf if each.floor is None else each.floor for each in rules])[rule]
    at_least: Floats = np.maximum(mu - sigmas * (sigma - offset), floor)
    return at_least


@lru_cache(maxsize=1000)
def rule_of(config: RatingConfig, seasons: tuple[Season, ...] = ()) -> RatingRule:
    """The rule of a configuration on a ladder where these seasons have started. Stage 2 and the
    events need no other parameters."""
    sigmas, offset = 2.0, config.sigma_offset
    if config.display == "mu" or (config.display is None and config.displays_mu):
        sigmas, offset = 0.0, 0.0
    elif isinstance(config.display, common.MinusSigma):
        sigmas, offset = config.display.minus_sigma, 0.0
    return RatingRule(
        system=str(config.__struct_config__.tag),
        kernel=KERNEL_VERSION,
        config=fingerprint(config),
        rho=-1.0 if math.isinf(config.momentum) else config.momentum,
        kept=config.kept,
        initial_mu=_as_stored(config, config.initial_mu),
        initial_sigma=_as_stored(config, config.initial_sigma),
        shown_sigmas=sigmas,
        shown_sigma_offset=offset,
        floor=config.floor,
        provisional_rounds=config.provisional_rounds,
        seasons=seasons,
    )


def _as_stored(config: RatingConfig, x: float) -> float:
    """x as a belief stores it: rounded to float32 if the belief is a record."""
    return single(x) if config.kept else x


def compared(config: RatingConfig, wave: Wave) -> Wave:
    """The wave with the places by which its entries are compared.

    With `dnf = "tied-last"`, all entries of a round that did not finish share a last place, as if
    they had been ranked there. With "not-compared" they keep the place DID_NOT_FINISH, by which
    each system sees that they did not finish.
    """
    if config.dnf == common.NOT_COMPARED or wave.place.all():
        return wave
    return wave._replace(
        place=np.where(wave.place == model.DID_NOT_FINISH, np.int32(model.LAST), wave.place)
    )


LEAST_WEIGHT = 1e-30
"""The weight of a round whose own weight is so small that its evidence overflows. It carries no
information either way."""


class NotANumber(ArithmeticError):
    """The evidence of a round is no finite number."""


def estimate(config: RatingConfig, wave: Wave) -> Evidence:
    """Stage 1 for the players of a wave whose rounds share this configuration. If the system places
    newcomers, their `mu` in the wave is overwritten with the mu at which they begin the round.
    Raises NotANumber, so that no belief is ever replaced by one that is none."""
    wave = compared(config, wave)
    if not (isinstance(config, common.PlacingNewcomers) and config.places_newcomers):
        return _measured(config, wave)
    levels.place_newcomers(config, wave)
    return levels.with_starts(wave, _measured(config, wave))


def _measured(config: RatingConfig, wave: Wave) -> Evidence:
    """The evidence (P, 3) of a wave whose sides are brought to one scale, and moved by their seats
    and experience."""
    moves = levels.moves_of(config, wave)
    if moves is None:
        return _finite(config, wave)
    return levels.moved_back(
        config, wave, moves, _finite(config, levels.moved(config, wave, moves))
    )


def _finite(config: RatingConfig, wave: Wave) -> Evidence:
    """The evidence (P, 3) of the system, all of it finite. Rounds whose evidence is not are
    estimated with at least LEAST_WEIGHT."""
    found = config.estimate(wave)
    if np.isfinite(found).all():
        return found
    first = wave.entry_starts[wave.round_starts[:-1]]  # (R,) the first player of each round
    wrong = np.logical_or.reduceat(~np.isfinite(found).all(axis=1), first)
    weight = np.where(wrong, np.maximum(wave.weight, LEAST_WEIGHT), wave.weight)
    found = config.estimate(wave._replace(weight=weight))
    if not np.isfinite(found).all():
        raise NotANumber("the evidence is no number")
    return found


_STAGE_2 = {name: system.update for name, system in SYSTEMS.items()}


def update(
    beliefs: Beliefs, rows: Ints, evidence: Evidence, rules: list[RatingRule], rule: Ints
) -> None:
    """Stage 2, in place, for the players in `rows`; rule[i] is the index of row i's rule."""
    ways = [_STAGE_2.get(each.system, common.Common.update) for each in rules]
    rho = np.array([each.momentum for each in rules])[rule]
    kept = np.array([each.kept for each in rules], dtype=np.int64)[rule]
    different = set(ways)
    for way in different:
        if len(different) == 1:
            way(beliefs, rows, evidence, rho, kept)
        else:
            own = np.array([each is way for each in ways])[rule]
            way(beliefs, rows[own], evidence[own], rho[own], kept[own])


def rate_waves(
    config: RatingConfig, beliefs: Beliefs, rows: Ints, wave: Wave, waves: Ints, offset: Ints
) -> tuple[Evidence, Posteriors]:
    """Run both stages, in place, for rounds that are given in waves. The rounds of a wave share no
    player, and are rated with the beliefs after the earlier waves.

    `wave` has all R rounds, with P players in all. Wave t has the rounds waves[t] : waves[t + 1].
    `rows` (P,) are the players' rows. `offset` (R,) is stored as the last offset of each round's
    players. The mu, sigma, rounds and last_time of `wave` are overwritten with the values before
    each round. For newcomers whom the system places, mu is the one at which they begin the round.
    Returns the evidence, with the column BEGAN if the system places newcomers, and mu and sigma of
    each player after each round.
    """
    if not isinstance(config, EloMMR) or levels.is_moved(config, wave):
        return rate_wave_by_wave(config, beliefs, rows, wave, waves, offset)
    stamps = _stamps_of(wave, offset)
    evidence, after = np.empty((len(rows), 3)), Posteriors(np.empty(len(rows)), np.empty(len(rows)))
    parameters = belief.EloMMRModel(
        variances_of(config), config.initial_mu, config.tie, config.momentum, config.kept
    )
    belief.rate_waves(
        beliefs.header, beliefs.factors, rows, compared(config, wave), waves, stamps, parameters,
        evidence, after,
    )  # fmt: skip
    return evidence, after


def _stamps_of(wave: Wave, offset: Ints) -> RoundStamps:
    sizes = np.diff(wave.entry_starts[wave.round_starts])
    return RoundStamps(np.repeat(offset, sizes), np.repeat(wave.time, sizes))


def rate_wave_by_wave(
    config: RatingConfig, beliefs: Beliefs, rows: Ints, wave: Wave, waves: Ints, offset: Ints
) -> tuple[Evidence, Posteriors]:
    """Do the same as `rate_waves`, for any system, with a call of each stage for each wave."""
    stamps, rule = _stamps_of(wave, offset), [rule_of(config)]
    evidence, after = list[Evidence](), Posteriors(np.empty(len(rows)), np.empty(len(rows)))
    for first, end in pairwise(waves.tolist()):
        some = wave.part(first, end)
        a, b = wave.entry_starts[wave.round_starts[[first, end]]]
        own, same = rows[a:b], np.zeros(b - a, np.int64)
        some.mu[:], some.sigma[:], some.rounds[:], some.last_time[:] = model.look_up(
            beliefs.header, own
        )
        evidence.append(estimate(config, some))
        update(beliefs, own, evidence[-1], rule, same)
        record_round(beliefs, own, stamps.offset[a:b], stamps.time[a:b])
        after.mu[a:b], after.sigma[a:b] = beliefs.header["mu"][own], beliefs.header["sigma"][own]
    return np.concatenate(evidence), after


def record_round(beliefs: Beliefs, rows: Ints, offset: Ints, time: Ints) -> None:
    """Store a round that was just rated in the beliefs of the players in `rows`: `offset` and
    `time` (len(rows),) are its source offset and its time."""
    model.record_rounds(beliefs.header, rows, offset, time)
