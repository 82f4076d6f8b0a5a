"""Stage 2: what do we now believe of each player? (Sections 3.2 and 4 of the paper.)

A belief is a Gaussian factor (center, precision) times logistic factors (p, a, scale * r); its mode
is the rating mu. One round does three things to it:

1. `diffuse` (Algorithm 2): skill may have changed since. With kappa = sigma^2/(sigma^2 + gamma^2),
   the part 1 - kappa^rho of every factor moves into a Gaussian centred at mu, then all weights
   decay by kappa: by one scale for all. mu stays, sigma^2 grows by exactly gamma^2.
2. the round's performance p joins as a logistic factor of variance beta^2, weight 1/beta^2.
3. the new mode is found (the zero of Algorithm 3), and sigma^-2 grows by beta^-2.

Where factors are merged, numbers are rounded as `rounding` says, before the mode is sought: mu is
the mode of the very belief that the record holds.

The total weight w_0 + sum w_k equals sigma^-2 throughout (Equation 10), and that is how it is
computed here: it then depends on no performance, which incentive compatibility needs (Lemma 5.4),
even after the sketch has merged factors.
"""

import math

import numpy as np

from stream_rater.rating.compiled import inlined, kernel
from stream_rater.rating.elementary import exp, log, tanh
from stream_rater.rating.factor import code_of, excess_of, performance_of, slope_of, weight_of
from stream_rater.rating.mode import (
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
from stream_rater.rating.model import HEADER, Codes, Evidence, Factors, Floats, Ints, Table
from stream_rater.rating.performance import C
from stream_rater.rating.prefetch import LINE, prefetch
from stream_rater.rating.rounding import power_of_two, single
from stream_rater.rating.sketch import (
    KEPT,
    NEW_A,
    NEW_P,
    NEW_R,
    E,
    insert,
    merge,
    normalise,
    rebase,
    settle,
    steepest,
)
from stream_rater.rating.sketch import ROWS as USED
from stream_rater.rating.vectors import aligned

PERFORMANCE, BETA2, GAMMA2, RHO = range(USED, USED + 4)
"""Rows of `lanes`, beside those of `mode` and `sketch`: the evidence, and the inverse momentum."""
BETA, U = USED + 4, USED + 5
"""The root of BETA2, and C / beta."""
ROW = USED + 6
"""Where the belief is held."""
PER_POINT, STEEPEST = USED + 7, USED + 8
"""What codes are read and written with: the grid's steps to a point, and the narrowest's slope."""
ROWS = USED + 9

BLOCK = 40
"""Beliefs that are updated side by side."""

HEADER_BYTES = HEADER.itemsize

NOTHING = 1e-300
"""Keeps the Gaussian's center from being 0 / 0 where it has no weight at all."""

NARROWER = 1.0 - 1e-6
"""A performance narrower by more than rounding is a new narrowest."""


@inlined
def _diffuse(lanes: Floats, n: int) -> None:
    """Algorithm 2; SIGMA is left as it was."""
    for i in range(n):
        variance, rho = lanes[SIGMA, i] * lanes[SIGMA, i], lanes[RHO, i]
        kappa = variance / (variance + lanes[GAMMA2, i])
        stays = 0.0 if rho == math.inf else exp(rho * log(kappa))
        gaussian, moved = stays * lanes[PRECISION, i], (1.0 - stays) / variance
        blend = moved / (gaussian + moved + NOTHING)
        lanes[CENTER, i] += blend * (lanes[MU, i] - lanes[CENTER, i])
        lanes[PRECISION, i] = kappa * (gaussian + moved)
        lanes[SCALE, i] *= kappa * stays


@inlined
def _make_room(held: Floats, lanes: Floats, i: int, u: float, beta: float) -> None:
    """Let the factors of lane i be such that one of weight u and standard deviation beta fits."""
    count = int(lanes[COUNT, i])
    if lanes[SCALE, i] == 0.0:  # without momentum no factor outlives a round
        for k in range(count):
            held[P, k, i], held[A, k, i], held[R, k, i], held[E, k, i] = FILL, 0.0, 0.0, 0.0
        count, lanes[COUNT, i] = 0, 0.0
    if count == 0:
        lanes[SCALE, i], lanes[NARROWEST, i] = single(u), single(beta)
    elif lanes[KEPT, i] > 0.0 and beta < lanes[NARROWEST, i] * NARROWER:
        rebase(held, i, count, single(beta))
        lanes[NARROWEST, i] = single(beta)
    normalise(held, lanes, i, u / lanes[SCALE, i])


@inlined
def _join(held: Floats, lanes: Floats, n: int, most: int) -> None:
    """Let each belief's performance join its factors."""
    for i in range(n):
        beta = np.sqrt(lanes[BETA2, i])
        lanes[BETA, i], lanes[U, i] = beta, C / beta
    for i in range(n):
        narrower = lanes[BETA, i] < lanes[NARROWEST, i] * NARROWER
        if lanes[U, i] >= 2.0 * lanes[SCALE, i] or narrower or lanes[COUNT, i] == 0.0:
            _make_room(held, lanes, i, lanes[U, i], lanes[BETA, i])
    for i in range(n):
        lanes[NEW_P, i], lanes[NEW_A, i] = lanes[PERFORMANCE, i], 0.5 * lanes[U, i]
        lanes[NEW_R, i] = lanes[U, i] / lanes[SCALE, i]
    settle(lanes, n)
    insert(held, lanes, n, most)
    merge(held, lanes, n, most + 1)


@inlined
def _conclude(lanes: Floats, n: int) -> None:
    """The new sigma; all rounded where factors are; and a guess at the mode."""
    for i in range(n):
        variance, beta2 = lanes[SIGMA, i] * lanes[SIGMA, i], lanes[BETA2, i]
        sigma = 1.0 / np.sqrt(1.0 / (variance + lanes[GAMMA2, i]) + 1.0 / beta2)
        rounded = lanes[KEPT, i] > 0.0
        lanes[SIGMA, i] = single(sigma) if rounded else sigma
        for row in (CENTER, PRECISION, SCALE):
            lanes[row, i] = single(lanes[row, i]) if rounded else lanes[row, i]
        u = lanes[U, i]
        pull = u * tanh(0.5 * u * (lanes[PERFORMANCE, i] - lanes[MU, i]))
        lanes[X, i] = lanes[MU, i] + lanes[SIGMA, i] * lanes[SIGMA, i] * pull


@inlined
def _fetch(header: Table, factors: Factors, rows: Ints, block: Ints) -> None:
    """Ask for the factors of beliefs rows[block]: they come while another block is worked on."""
    size = factors.strides[1]
    for i in range(len(block)):
        row = rows[block[i]]
        prefetch(header, row, LINE)
        prefetch(header, row, HEADER_BYTES - 1)  # a row may begin anywhere in a line
        for offset in range(0, size * int(header[row].count + 0) + LINE, LINE):
            prefetch(factors, row, offset)


@inlined
def _load_numbers(factors: Floats, held: Floats, lanes: Floats, n: int, most: int) -> None:
    for i in range(n):
        row, count = int(lanes[ROW, i]), int(lanes[COUNT, i])
        for k in range(most + 1):
            held[P, k, i], held[A, k, i], held[R, k, i], held[E, k, i] = FILL, 0.0, 0.0, 0.0
        for k in range(count):
            for c in range(3):
                held[c, k, i] = factors[row, k, c]


@inlined
def _load_codes(
    factors: Codes, codes: Codes, held: Floats, lanes: Floats, n: int, most: int
) -> None:
    for i in range(0, n, 4):  # so that a vector is written, not four numbers
        row_0, row_1 = int(lanes[ROW, i]), int(lanes[ROW, i + 1])
        row_2, row_3 = int(lanes[ROW, i + 2]), int(lanes[ROW, i + 3])
        count = max(lanes[COUNT, i], lanes[COUNT, i + 1], lanes[COUNT, i + 2], lanes[COUNT, i + 3])
        for k in range(int(count)):
            x_0, x_1 = factors[row_0, k], factors[row_1, k]
            x_2, x_3 = factors[row_2, k], factors[row_3, k]
            codes[k, i], codes[k, i + 1], codes[k, i + 2], codes[k, i + 3] = x_0, x_1, x_2, x_3
    for i in range(n):
        lanes[STEEPEST, i] = steepest(lanes[NARROWEST, i])
        lanes[PER_POINT, i] = 1.0 / lanes[GRID, i]
    for k in range(most + 1):
        at = float(k)  # a loop over lanes that turns k itself into a float stays scalar
        for i in range(n):
            here, code = at < lanes[COUNT, i], codes[k, i]
            held[P, k, i] = performance_of(code, lanes[GRID, i]) if here else FILL
            held[A, k, i] = slope_of(code, lanes[STEEPEST, i]) if here else 0.0
            held[R, k, i] = weight_of(code) if here else 0.0
            held[E, k, i] = excess_of(code) if here else 0.0


@inlined
def _load(
    header: Table, factors: Factors, rows: Ints, evidence: Evidence, rho: Floats, kept: Ints,
    block: Ints, codes: Codes, held: Floats, lanes: Floats,
) -> int:  # fmt: skip
    """Beliefs rows[block] into lanes; the most factors that one has."""
    most = 0
    for i in range(filled(len(block))):
        j = block[i] if i < len(block) else block[0]  # to fill up: a twin, whose result is dropped
        belief = header[rows[j]]
        count = belief.count + 0  # + 0: signed, or numba counts in floats
        most = max(most, count)
        lanes[MU, i], lanes[SIGMA, i] = belief.mu, belief.sigma
        lanes[CENTER, i], lanes[PRECISION, i] = belief.center, belief.precision
        lanes[SCALE, i], lanes[NARROWEST, i] = belief.scale, belief.width
        lanes[COUNT, i], lanes[GRID, i] = count, power_of_two(belief.grid)
        lanes[PERFORMANCE, i], lanes[BETA2, i] = evidence[j, 0], evidence[j, 1]
        lanes[GAMMA2, i], lanes[RHO, i], lanes[KEPT, i] = evidence[j, 2], rho[j], kept[j]
        lanes[ROW, i] = rows[j]
    if factors.ndim == 2:
        _load_codes(factors, codes, held, lanes, filled(len(block)), most)
    else:
        _load_numbers(factors, held, lanes, filled(len(block)), most)
    return most


@inlined
def _store_factors(
    factors: Factors, codes: Codes, held: Floats, lanes: Floats, n: int, most: int
) -> None:
    if factors.ndim == 2:
        for k in range(most):
            for i in range(filled(n)):
                p = held[P, k, i] if held[P, k, i] < FILL else 0.0
                codes[k, i] = code_of(p, held[R, k, i], held[E, k, i], lanes[PER_POINT, i])
        for i in range(n):
            row = int(lanes[ROW, i])
            for k in range(int(lanes[COUNT, i])):
                factors[row, k] = codes[k, i]
    else:
        for i in range(n):
            row = int(lanes[ROW, i])
            for k in range(int(lanes[COUNT, i])):
                for c in range(3):
                    factors[row, k, c] = held[c, k, i]


@inlined
def _store_headers(header: Table, rows: Ints, block: Ints, lanes: Floats) -> None:
    """All but the new mode."""
    for i in range(len(block)):
        belief = header[rows[block[i]]]
        belief.previous_mu, belief.previous_sigma = belief.mu, belief.sigma
        belief.sigma, belief.center = lanes[SIGMA, i], lanes[CENTER, i]
        belief.precision, belief.scale = lanes[PRECISION, i], lanes[SCALE, i]
        belief.width, belief.count = lanes[NARROWEST, i], int(lanes[COUNT, i])


@inlined
def _in_order_of_count(header: Table, rows: Ints) -> Ints:
    """Indices into `rows` by the number of factors: those side by side should have as many."""
    most = 0
    for row in rows:
        most = max(most, header[row].count + 0)
    first = np.zeros(most + 2, np.int64)
    for row in rows:
        first[header[row].count + 1] += 1
    first = np.cumsum(first)
    order = np.empty(len(rows), np.int64)
    for j in range(len(rows)):
        count = header[rows[j]].count + 0
        order[first[count]] = j
        first[count] += 1
    return order


@kernel
def update(
    header: Table, factors: Factors, rows: Ints, evidence: Evidence, rho: Floats, kept: Ints
) -> None:
    """Diffuse, add the evidence and solve, in place, for the beliefs in `rows`.

    `header` (n,) and `factors` as in model.Beliefs; `evidence` (len(rows), 3); `rho` and `kept`
    (len(rows),), kept = 0 for all factors, unrounded, which no codes can hold. A belief must have
    room for one more factor than it holds. Previous mu and sigma are remembered; offsets and times
    are not touched.
    """
    order = _in_order_of_count(header, rows)
    room = header[rows[order[-1]]].count + 2 if len(rows) else 0
    held = aligned(4 * room * BLOCK).reshape((4, room, BLOCK))
    codes = aligned(room * BLOCK).view(np.int64).reshape((room, BLOCK))
    lanes, found = aligned(ROWS * BLOCK).reshape((ROWS, BLOCK)), np.empty(BLOCK)
    _fetch(header, factors, rows, order[:BLOCK])
    for start in range(0, len(rows), BLOCK):
        block = order[start : start + BLOCK]
        _fetch(header, factors, rows, order[start + BLOCK : start + 2 * BLOCK])
        most = _load(header, factors, rows, evidence, rho, kept, block, codes, held, lanes)
        n = filled(len(block))
        _diffuse(lanes, n)
        _join(held, lanes, n, most)
        _conclude(lanes, n)
        _store_headers(header, rows, block, lanes)
        _store_factors(factors, codes, held, lanes, len(block), most + 1)
        find_modes(held, lanes, len(block), most + 1, found)
        for i in range(len(block)):
            header[rows[block[i]]].mu = single(found[i]) if kept[block[i]] > 0 else found[i]


def replace(header: Table, rows: Ints, evidence: Evidence, kept: Ints) -> None:
    """Stage 2 of a memoryless system, in place: evidence[:, 1:] are the new mu and sigma.

    They are rounded to what a record holds unless kept is 0.
    """
    header["previous_mu"][rows] = header["mu"][rows]
    header["previous_sigma"][rows] = header["sigma"][rows]
    rounded = np.where(kept[:, None] > 0, evidence[:, 1:].astype(np.float32), evidence[:, 1:])
    header["mu"][rows], header["sigma"][rows] = rounded.T
