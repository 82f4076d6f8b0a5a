"""Stage 2: updates the belief about each player with a round's evidence (sections 3.2 and 4 of the
paper).

A belief is a product of a Gaussian factor (center, precision) and logistic factors (p, a, scale *
r). Its mode is the rating mu. A round changes it in three steps:

1. `diffuse` (Algorithm 2): skill may have changed since the last round. With kappa =
   sigma^2/(sigma^2 + gamma^2), the part 1 - kappa^rho of every factor moves into a Gaussian centred
   at mu. Then all weights decay by kappa, through their common scale. mu stays, and sigma^2 grows
   by exactly gamma^2.
2. The round's performance p joins as a logistic factor of variance beta^2 and weight 1/beta^2.
3. The new mode is found (the zero of Algorithm 3), and sigma^-2 grows by beta^-2.

If factors are merged, numbers are rounded as in `factor` before the mode is sought, so that mu is
the mode of exactly the belief that the record stores.

The total weight w_0 + sum w_k always equals sigma^-2 (Equation 10), and is computed from sigma. So
it depends on no performance, even after the sketch has merged factors. Incentive compatibility
needs this (Lemma 5.4).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.intrinsics import LINE, prefetch
from stream_rater.columns.kernels import giving, inlined, kernel
from stream_rater.rating.elementary import aligned, exp, log, tanh
from stream_rater.rating.elo_mmr import performance, sketch
from stream_rater.rating.elo_mmr.sketch import KEPT, NEW_A, NEW_P, NEW_R
from stream_rater.rating.elo_mmr.sketch import ROWS as USED
from stream_rater.rating.factor import growth, insert, power_of_two, single
from stream_rater.rating.model import (
    HEADER,
    Codes,
    Evidence,
    Factors,
    History,
    Table,
    Variances,
    Wave,
    read_priors,
    record_rounds,
)
from stream_rater.rating.roots import (
    CENTER,
    COUNT,
    FILL,
    GRID,
    MU,
    NARROWEST,
    PRECISION,
    SCALE,
    SIGMA,
    A,
    P,
    R,
    X,
    filled,
    find_modes,
)

PERFORMANCE, BETA2, GAMMA2, RHO = range(USED, USED + 4)
"""More rows of `lanes`, after those of `roots` and `sketch`: evidence and inverse momentum."""
BETA, U = USED + 4, USED + 5  # Rows for beta, and for C / beta.
ROW = USED + 6  # The row for the belief's index in the table.
ROWS = USED + 7

BLOCK = 40  # The number of beliefs that are updated together, one in each lane.

HEADER_BYTES = HEADER.itemsize

NOTHING = 1e-300  # Prevents 0 / 0 for the Gaussian's center where it has no weight.


@inlined
def diffuse(lanes: Floats, n: int) -> None:
    """Apply Algorithm 2 to n lanes, except for SIGMA, which `_conclude` sets."""
    for i in range(n):
        variance, rho = lanes[SIGMA, i] * lanes[SIGMA, i], lanes[RHO, i]
        kappa = variance / (variance + lanes[GAMMA2, i])
        stays = 0.0 if rho == math.inf else exp(rho * log(kappa))
        gaussian, moved = stays * lanes[PRECISION, i], (1.0 - stays) / variance
        blend = moved / (gaussian + moved + NOTHING)
        lanes[CENTER, i] += blend * (lanes[MU, i] - lanes[CENTER, i])
        lanes[PRECISION, i] = kappa * (gaussian + moved)
        lanes[SCALE, i] *= kappa * stays


@kernel
def diffuse_one(head: Any, sigma: float, rho: float) -> None:
    """Diffuse one belief, in place, so that its sigma rises to `sigma`."""
    lanes = np.empty((ROWS, 1))
    lanes[MU, 0], lanes[SIGMA, 0], lanes[RHO, 0] = head.mu, head.sigma, rho
    lanes[CENTER, 0], lanes[PRECISION, 0] = head.center, head.precision
    lanes[SCALE, 0], lanes[GAMMA2, 0] = head.scale, sigma * sigma - head.sigma**2
    diffuse(lanes, 1)
    head.center, head.precision = lanes[CENTER, 0], lanes[PRECISION, 0]
    head.scale, head.sigma = lanes[SCALE, 0], sigma


@inlined
def _to_factors(lanes: Floats, n: int) -> None:
    """Turn each performance into a logistic factor, without its relative weight."""
    for i in range(n):
        beta = np.sqrt(lanes[BETA2, i])
        lanes[BETA, i], lanes[U, i] = beta, performance.C / beta
        lanes[NEW_P, i], lanes[NEW_A, i] = lanes[PERFORMANCE, i], 0.5 * lanes[U, i]


@inlined
def _join_sketch(codes: Codes, new: Codes, lanes: Floats, n: int, most: int) -> None:
    """Add each performance to up to `most` encoded factors, and merge down to the number to
    keep."""
    sketch.make_room(codes, lanes, n, most, U, BETA)
    for i in range(n):
        lanes[NEW_R, i] = lanes[U, i] / lanes[SCALE, i]
    sketch.settle(new, lanes, n)
    sketch.insert(codes, new, lanes, n, most)
    sketch.merge(codes, new, lanes, n, most + 1)


@inlined
def _join_history(history: History, lanes: Floats, n: int) -> None:
    """Add each performance to the full history of numbers."""
    for i in range(n):
        terms, count, scale = history[int(lanes[ROW, i])], int(lanes[COUNT, i]), lanes[SCALE, i]
        if scale == 0.0:  # without momentum, no factor survives a round
            count = 0
        if count == 0:
            scale = single(lanes[U, i])
        times = growth(lanes[U, i] / scale)
        for k in range(count):
            terms[k, 2] /= times
        lanes[COUNT, i], lanes[SCALE, i] = count + 1, scale * times
        insert(terms, count, lanes[NEW_P, i], lanes[NEW_A, i], lanes[U, i] / lanes[SCALE, i])


@inlined
def _conclude(lanes: Floats, n: int, rounded: bool) -> None:
    """Set the new sigma and a first guess of the mode. If `rounded`, round all numbers as a record
    stores them."""
    for i in range(n):
        variance, beta2 = lanes[SIGMA, i] * lanes[SIGMA, i], lanes[BETA2, i]
        sigma = 1.0 / np.sqrt(1.0 / (variance + lanes[GAMMA2, i]) + 1.0 / beta2)
        lanes[SIGMA, i] = single(sigma) if rounded else sigma
        for row in (CENTER, PRECISION, SCALE):
            lanes[row, i] = single(lanes[row, i]) if rounded else lanes[row, i]
        u = lanes[U, i]
        pull = u * tanh(0.5 * u * (lanes[PERFORMANCE, i] - lanes[MU, i]))
        lanes[X, i] = lanes[MU, i] + lanes[SIGMA, i] * lanes[SIGMA, i] * pull


@inlined
def _fetch(header: Table, factors: Factors, rows: Ints, block: Ints) -> None:
    """Prefetch the factors of beliefs rows[block], while another block is being worked on."""
    size = factors.strides[1]
    for i in range(len(block)):
        row = rows[block[i]]
        prefetch(header, row, LINE)
        prefetch(header, row, HEADER_BYTES - 1)  # a row may begin anywhere in a line
        for offset in range(0, size * int(header[row].count + 0) + LINE, LINE):
            prefetch(factors, row, offset)


@inlined
def _load_codes(factors: Codes, codes: Codes, lanes: Floats, n: int) -> None:
    for i in range(0, n, 4):  # four at a time, so that one vector is written
        row_0, row_1 = int(lanes[ROW, i]), int(lanes[ROW, i + 1])
        row_2, row_3 = int(lanes[ROW, i + 2]), int(lanes[ROW, i + 3])
        count = max(lanes[COUNT, i], lanes[COUNT, i + 1], lanes[COUNT, i + 2], lanes[COUNT, i + 3])
        for k in range(int(count)):
            x_0, x_1 = factors[row_0, k], factors[row_1, k]
            x_2, x_3 = factors[row_2, k], factors[row_3, k]
            codes[k, i], codes[k, i + 1], codes[k, i + 2], codes[k, i + 3] = x_0, x_1, x_2, x_3


@inlined
def _store_codes(factors: Codes, codes: Codes, lanes: Floats, n: int) -> None:
    for i in range(n):
        row = int(lanes[ROW, i])
        for k in range(int(lanes[COUNT, i])):
            factors[row, k] = codes[k, i]


@inlined
def _load_history(history: History, terms: Floats, lanes: Floats, n: int, most: int) -> None:
    """Copy up to `most` factors of each belief, and put FILL after them."""
    for i in range(n):
        row, count = int(lanes[ROW, i]), int(lanes[COUNT, i])
        for k in range(most):
            terms[P, k, i], terms[A, k, i], terms[R, k, i] = FILL, 0.0, 0.0
        for k in range(count):
            for c in range(3):
                terms[c, k, i] = history[row, k, c]


@inlined
def _load(
    header: Table, rows: Ints, evidence: Evidence, rho: Floats, kept: Ints, block: Ints,
    lanes: Floats,
) -> int:  # fmt: skip
    """Load beliefs rows[block], without their factors, into lanes. Returns the largest number of
    factors."""
    most = 0
    for i in range(filled(len(block))):
        j = block[i] if i < len(block) else block[0]  # surplus lane: a copy, never stored
        belief = header[rows[j]]
        count = belief.count + 0  # + 0 makes it signed: numba would use floats
        most = max(most, count)
        lanes[MU, i], lanes[SIGMA, i] = belief.mu, belief.sigma
        lanes[CENTER, i], lanes[PRECISION, i] = belief.center, belief.precision
        lanes[SCALE, i], lanes[NARROWEST, i] = belief.scale, belief.width
        lanes[COUNT, i], lanes[GRID, i] = count, power_of_two(belief.grid)
        lanes[PERFORMANCE, i], lanes[BETA2, i] = evidence[j, 0], evidence[j, 1]
        lanes[GAMMA2, i], lanes[RHO, i], lanes[KEPT, i] = evidence[j, 2], rho[j], kept[j]
        lanes[ROW, i] = rows[j]
    return most


@inlined
def _store_headers(header: Table, rows: Ints, block: Ints, lanes: Floats) -> None:
    """Store everything except the new mode."""
    for i in range(len(block)):
        belief = header[rows[block[i]]]
        belief.previous_mu, belief.previous_sigma = belief.mu, belief.sigma
        belief.sigma, belief.center = lanes[SIGMA, i], lanes[CENTER, i]
        belief.precision, belief.scale = lanes[PRECISION, i], lanes[SCALE, i]
        belief.width, belief.count = lanes[NARROWEST, i], int(lanes[COUNT, i])


@giving
def _in_order_of_count(header: Table, rows: Ints) -> Ints:
    """Indices into `rows`, in order of the number of factors, so that the beliefs of a block have
    similar numbers of factors."""
    most, counts = 0, np.empty(len(rows), np.int64)
    for j in range(len(rows)):
        counts[j] = header[rows[j]].count
        most = max(most, counts[j])
    first = np.zeros(most + 2, np.int64)
    for count in counts:
        first[count + 1] += 1
    first = np.cumsum(first)
    order = np.empty(len(rows), np.int64)
    for j in range(len(rows)):
        order[first[counts[j]]] = j
        first[counts[j]] += 1
    return order


@kernel
def update(
    header: Table, factors: Factors, rows: Ints, evidence: Evidence, rho: Floats, kept: Ints
) -> None:
    """Diffuse, add the evidence and find the mode, in place, for the beliefs in `rows`.

    `header` (n,) and `factors` are as in model.Beliefs. `evidence` is (len(rows), 3). `rho` and
    `kept` are (len(rows),), where `kept` is the number of factors that are kept as codes. A full
    history keeps all factors as numbers. `factors` must have room for one more factor than each
    belief has. The previous mu and sigma are stored; offsets and times are not changed.
    """
    rounded = factors.ndim == 2
    order = _in_order_of_count(header, rows)
    room = header[rows[order[-1]]].count + 2 if len(rows) else 0
    terms = aligned(3 * room * BLOCK).reshape((3, room, BLOCK))
    codes = aligned(room * BLOCK).view(np.int64).reshape((room, BLOCK))
    new, found = aligned(BLOCK).view(np.int64), np.empty(BLOCK)
    lanes = aligned(ROWS * BLOCK).reshape((ROWS, BLOCK))
    _fetch(header, factors, rows, order[:BLOCK])
    for start in range(0, len(rows), BLOCK):
        block = order[start : start + BLOCK]
        _fetch(header, factors, rows, order[start + BLOCK : start + 2 * BLOCK])
        most, n = _load(header, rows, evidence, rho, kept, block, lanes), filled(len(block))
        diffuse(lanes, n)
        _to_factors(lanes, n)
        if factors.ndim == 2:
            _load_codes(factors, codes, lanes, n)
            _join_sketch(codes, new, lanes, n, most)
            _store_codes(factors, codes, lanes, len(block))
            sketch.read(codes, terms, lanes, n, most + 1)
        else:
            _join_history(factors, lanes, len(block))
            _load_history(factors, terms, lanes, len(block), most + 1)
        _conclude(lanes, n, rounded)
        _store_headers(header, rows, block, lanes)
        find_modes(terms, lanes, len(block), most + 1, rounded, found)
        for i in range(len(block)):
            header[rows[block[i]]].mu = single(found[i]) if rounded else found[i]


def replace(header: Table, rows: Ints, evidence: Evidence, kept: Ints) -> None:
    """Run stage 2 of a memoryless system, in place: evidence[:, 1:3] are the new mu and sigma.

    They are rounded to float32, as a record stores them, unless `kept` is 0. The previous mu of a
    newcomer whom the system placed is the mu at the beginning of the round, because nothing was
    published before.
    """
    rounded = np.where(kept[:, None] > 0, evidence[:, 1:].astype(np.float32), evidence[:, 1:])
    before = header["mu"][rows]
    if rounded.shape[1] > 2:
        before = np.where(np.isnan(rounded[:, 2]), before, rounded[:, 2])
    header["previous_mu"][rows], header["previous_sigma"][rows] = before, header["sigma"][rows]
    header["mu"][rows], header["sigma"][rows] = rounded[:, 0], rounded[:, 1]


class EloMMRModel(NamedTuple):
    """The parameters of Elo-MMR, as kernels take them."""

    variances: Variances
    initial_mu: float
    tie: float  # 1.0 or 0.5: see `performance`.
    rho: float  # The inverse momentum; may be infinite.
    kept: int  # The number of factors that a belief keeps; 0 for a full history.


class Posteriors(NamedTuple):
    """The ratings of P players after stage 2."""

    mu: Floats  # (P,) the rating.
    sigma: Floats  # (P,) the uncertainty.


class RoundStamps(NamedTuple):
    """The offset and the time of each player's round, which the belief stores."""

    offset: Ints  # (P,) the source offset.
    time: Ints  # (P,) Unix seconds.


@kernel
def rate_waves(
    header: Table, factors: Factors, rows: Ints, wave: Wave, waves: Ints, stamps: RoundStamps,
    model: EloMMRModel, evidence: Evidence, after: Posteriors,
) -> None:  # fmt: skip
    """Rate rounds by Elo-MMR, in place, each with the beliefs after the earlier waves. There are T
    waves, whose rounds share no player, and P players; a player is counted once for each round.

    The bits are those of rating wave by wave, with the same kernels. But the loop over waves is
    compiled, too: in Python it would take longer than a round of a few players.

    `header` and `factors` are the beliefs, and `rows` (P,) are the players' rows in them. Wave t
    has the rounds waves[t] : waves[t + 1], so `waves` is (T+1,). The columns mu, sigma, rounds and
    last_time of `wave` are overwritten with the values before each round. The evidence is written
    to `evidence` (P, 3), and mu and sigma after each round are written to `after`.
    """
    rho, kept = np.full(len(rows), model.rho), np.full(len(rows), model.kept)
    for t in range(len(waves) - 1):
        some = performance.some_rounds(wave, waves[t], waves[t + 1])
        i = wave.entry_starts[wave.round_starts[waves[t]]]
        j = wave.entry_starts[wave.round_starts[waves[t + 1]]]
        own, found = rows[i:j], evidence[i:j]
        read_priors(header, own, some.mu, some.sigma, some.rounds, some.last_time)
        performance.estimate(some, model.variances, model.initial_mu, model.tie, found)
        update(header, factors, own, found, rho[i:j], kept[i:j])
        record_rounds(header, own, stamps.offset[i:j], stamps.time[i:j])
        for k in range(i, j):
            after.mu[k], after.sigma[k] = header[rows[k]].mu, header[rows[k]].sigma
