"""How well ratings foretell a round: the measures, round by round.

Entries are ordered by rating before the round and by place in it; all that did not finish are one
tie for last. For the *experienced* entries (LEAST_ROUNDS rounds played before; of a team, by every
member) re-ranked among themselves, and once more for all, where not all tie:

- pair inversion: 100 (1 - inversions / pairs), %; pairs tied in place or in rating are correct;
- rank deviation: 100 sum |i - nearest place in the tie range of entry i| / (n (n - 1)), %, where i
  is the position by rating. Entries equal in rating stand as they did in the round, so that they
  count as correct here, too.

Over all entries of pairs not tied in place:

- Kendall's tau as B. Kerby defines it: the share of pairs in which the lower rated one was better;
  equal ratings count half;
- log loss and Brier score of the probability that the better one was to be better (`chances`).

Averages over rounds weigh a round by its number of entries n; Kendall's tau by its pairs. (Paper,
section 6.3, but for Kendall's tau and the two scores.)

Everything takes O(n log n) time: one merge sort by rating counts the inversions. The probabilities
are not taken of all pairs above EXACT entries, but of those that stand d apart in the round for
STRIDES distances d, the same on every run and spread evenly over all: each entry meets as many
others, near and far. On Codeforces this moves the log loss of a whole evaluation by 0.0004.
"""

import numpy as np

from stream_rater.lab.measures import FIELDS, MEASURES, WEIGHT_OF
from stream_rater.rating.baselines.places import tie_bounds
from stream_rater.rating.compiled import inlined, kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.model import Floats, Ints, Places
from stream_rater.rating.normal import below
from stream_rater.rating.performance import C, team

LEAST_ROUNDS = 5
EXACT = 64
"""Up to so many entries every pair's probability is scored."""
STRIDES = 16
SURE = 1e-15
"""No probability is taken to be nearer to 0 or 1."""
TOGETHER = 8
"""Probabilities multiplied before one logarithm: 1e-15 to the eighth is still a normal float."""

BLOCK = 8
"""Runs of so many are sorted by insertion."""


def averages(scores: Floats) -> dict[str, float | None]:
    """Each measure over (R, len(FIELDS)) scores of rounds; None where no round has a weight."""
    found: dict[str, float | None] = {}
    for measure in MEASURES:
        values, weights = values_and_weights(scores, measure)
        total = float(weights.sum())
        found[measure] = float(values @ weights) / total if total > 0.0 else None
    return found


def values_and_weights(scores: Floats, measure: str) -> tuple[Floats, Floats]:
    """(R,) and (R,): a measure round by round, and what each round weighs in its average."""
    weight = FIELDS.index(WEIGHT_OF[measure])
    return scores[:, FIELDS.index(measure)], scores[:, weight]


@inlined
def _insertion(keys: Floats, at: Ints, first: int, end: int) -> int:
    """Sort [first, end) by falling key, stably; returns how many pairs changed their order."""
    inversions = 0
    for i in range(first + 1, end):
        key, index = keys[i], at[i]
        j = i
        while j > first and keys[j - 1] < key:
            keys[j], at[j] = keys[j - 1], at[j - 1]
            j -= 1
        keys[j], at[j] = key, index
        inversions += i - j
    return inversions


@inlined
def _merge(
    keys: Floats, at: Ints, to_keys: Floats, to_at: Ints, first: int, middle: int, end: int
) -> int:
    """Merge two sorted runs into [first, end) of the other arrays; returns inversions.

    Which run comes next is anybody's guess, so nothing branches on it.
    """
    i, j, k, inversions = first, middle, first, 0
    while i < middle and j < end:
        right = keys[i] < keys[j]
        to_keys[k] = keys[j] if right else keys[i]
        to_at[k] = at[j] if right else at[i]
        inversions += middle - i if right else 0
        j += 1 if right else 0
        i += 0 if right else 1
        k += 1
    to_keys[k : k + middle - i], to_at[k : k + middle - i] = keys[i:middle], at[i:middle]
    to_keys[k : k + end - j], to_at[k : k + end - j] = keys[j:end], at[j:end]
    return inversions


@kernel
def sort_counting(keys: Floats, at: Ints, spare_keys: Floats, spare_at: Ints) -> int:
    """Sort by falling key, stably, `at` along with it; returns pairs i < j with keys[i] < keys[j].

    All four arrays have length n; the spare ones are written over.
    """
    n, inversions = len(keys), 0
    for first in range(0, n, BLOCK):
        inversions += _insertion(keys, at, first, min(first + BLOCK, n))
    width = BLOCK
    while width < n:
        for first in range(0, n, 2 * width):
            middle, end = min(first + width, n), min(first + 2 * width, n)
            if middle == end or keys[middle - 1] >= keys[middle]:
                continue
            inversions += _merge(keys, at, spare_keys, spare_at, first, middle, end)
            keys[first:end] = spare_keys[first:end]
            at[first:end] = spare_at[first:end]
        width *= 2
    return inversions


@kernel
def compare(place: Places, mu: Floats) -> tuple[float, float, float, float]:
    """Entries in order of place against their ratings.

    Returns pair inversion and rank deviation in %, the pairs not tied in place, and the share of
    those that the ratings foretold wrongly. All tied: no pairs, and nothing else means anything.
    """
    n = len(place)
    lo, hi = tie_bounds(place)
    keys, at = mu.copy(), np.arange(n)
    spare_keys, spare_at = np.empty(n), np.empty(n, np.int64)
    pairs = 0.5 * n * (n - 1)
    untied = pairs
    first = 0
    while first < n:  # tie groups beforehand: what changes its order in them is no inversion
        end = hi[first] + 1
        size = end - first
        if size > 1:
            untied -= 0.5 * size * (size - 1)
            sort_counting(
                keys[first:end], at[first:end], spare_keys[first:end], spare_at[first:end]
            )
        first = end
    if untied == 0.0:
        return 0.0, 0.0, 0.0, 0.0
    inversions = sort_counting(keys, at, spare_keys, spare_at)
    deviation, equal, same_rating, same_both = 0.0, 0.0, 0, 0
    for i in range(n):
        entry = at[i]
        deviation += max(lo[entry] - i, 0) + max(i - hi[entry], 0)
        if i > 0 and keys[i] == keys[i - 1]:
            same_rating += 1
            same_both = same_both + 1 if place[entry] == place[at[i - 1]] else 0
            equal += same_rating - same_both
        else:
            same_rating = same_both = 0
    inversion = 100.0 * (1.0 - inversions / pairs)
    wrong = (inversions + 0.5 * equal) / untied
    return inversion, 100.0 * deviation / (n * (n - 1.0)), untied, wrong


@inlined
def _distances(n: int) -> Ints:
    """Distances in the round at which pairs of n entries are scored: all, or STRIDES of them."""
    if n <= EXACT:
        return np.arange(1, n)
    found = np.empty(STRIDES, np.int64)
    for k in range(STRIDES):
        found[k] = 1 + (2 * k + 1) * (n - 1) // (2 * STRIDES)
    return found


@inlined
def _foretell(
    place: Places, mu: Floats, variance: Floats, other_place: Places, other_mu: Floats,
    other_variance: Floats, gaussian: bool, product: Floats, square: Floats, scored: Ints,
) -> None:  # fmt: skip
    """Entries against others that stand behind: multiplies p into `product`, adds (1 - p)^2.

    Side by side, so that a processor works on several at once.
    """
    for i in range(len(place)):
        z = (mu[i] - other_mu[i]) / np.sqrt(variance[i] + other_variance[i])
        p = below(z) if gaussian else 1.0 / (1.0 + exp(-C * z))
        p = min(max(p, SURE), 1.0 - SURE)
        tied = place[i] == other_place[i]
        p = 1.0 if tied else p
        product[i] *= p
        square[i] += (1.0 - p) * (1.0 - p)
        scored[i] += 0 if tied else 1


@kernel
def chances(
    place: Places, mu: Floats, variance: Floats, gaussian: bool
) -> tuple[float, float, int]:
    """Mean log loss and Brier score of P(better one is better), and over how many pairs.

    The probability is F((mu_i - mu_j) / sqrt(variance_i + variance_j)), F being the normal or the
    logistic distribution of variance 1. Pairs tied in place are left out.
    """
    n, surprise = len(place), 0.0
    product, square, scored = np.ones(n), np.zeros(n), np.zeros(n, np.int64)
    distances = _distances(n)
    for k in range(len(distances)):
        d = distances[k]
        _foretell(
            place[: n - d], mu[: n - d], variance[: n - d], place[d:], mu[d:], variance[d:],
            gaussian, product[: n - d], square[: n - d], scored[: n - d],
        )  # fmt: skip
        if (k + 1) % TOGETHER == 0 or k + 1 == len(distances):
            for i in range(n):
                surprise -= log(product[i])
                product[i] = 1.0
    pairs = int(np.sum(scored))
    squares: float = np.sum(square)
    if pairs == 0:  # nearly all tie, and no pair at these distances does not
        return 0.0, 0.0, 0
    return surprise / pairs, squares / pairs, pairs


@inlined
def _score_round(
    place: Places, mu: Floats, variance: Floats, rounds: Ints, gaussian: bool, out: Floats
) -> None:
    n, known = len(place), 0
    some_place, some_mu = np.empty(n, place.dtype), np.empty(n)
    for i in range(n):
        if rounds[i] >= LEAST_ROUNDS:
            some_place[known], some_mu[known] = place[i], mu[i]
            known += 1
    inversion, deviation, untied, _ = compare(some_place[:known], some_mu[:known])
    if untied > 0.0:
        out[0], out[1], out[2] = known, inversion, deviation
    inversion, deviation, untied, wrong = compare(place, mu)
    if untied > 0.0:
        out[3], out[4], out[5], out[6], out[7] = n, inversion, deviation, untied, wrong
        surprise, square, scored = chances(place, mu, variance, gaussian)
        if scored > 0:
            out[8], out[9], out[10] = n, surprise, square


@kernel
def score(
    round_starts: Ints, place: Places, entry_starts: Ints, share: Floats, mu: Floats,
    sigma: Floats, rounds: Ints, initial_mu: float, noise: float, sigmas: float, gaussian: bool,
) -> Floats:  # fmt: skip
    """(R, len(FIELDS)) for the rounds of a wave, from its players' beliefs before (model.Wave).

    The variance of an entry is the sum over its members of share^2 (sigmas sigma^2 + noise).
    """
    entries = len(place)
    entry_mu, variance = np.empty(entries), np.empty(entries)
    played = np.empty(entries, np.int64)
    for e in range(entries):
        i, j = entry_starts[e], entry_starts[e + 1]
        if j - i == 1 and share[i] == 1.0:
            entry_mu[e], played[e] = mu[i], rounds[i]
            variance[e] = sigmas * sigma[i] * sigma[i] + noise
        else:
            spread = sigmas * sigma[i:j] * sigma[i:j] + noise
            entry_mu[e], variance[e] = team(initial_mu, share[i:j], mu[i:j], spread)
            played[e] = np.min(rounds[i:j])
    out = np.zeros((len(round_starts) - 1, 11))
    for r in range(len(out)):
        a, b = round_starts[r], round_starts[r + 1]
        _score_round(place[a:b], entry_mu[a:b], variance[a:b], played[a:b], gaussian, out[r])
    return out
