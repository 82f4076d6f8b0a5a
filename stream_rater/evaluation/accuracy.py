"""Measures how well the ratings before a round predict it, round by round.

The order of the entries by their ratings before the round is compared with their order by place.
Entries that did not finish tie for the last place. The first three measures are computed twice:
over the *experienced* entries, which are ranked again among themselves, and over all entries. A
round is left out if all the entries that a measure considers tie. An entry is experienced if it
played at least LEAST_ROUNDS rounds before. A team is experienced if every member is.

- pair inversion: 100 (1 - inversions / pairs), in %. Pairs that tie in place or in rating count as
  correct;
- rank deviation: 100 sum |i - nearest place in the tie range of entry i| / (n (n - 1)), in %, where
  i is the position by rating. Entries of equal rating keep their order in the round, so they count
  as correct, too;
- order: the share, in %, of the pairs not tied in place that the ratings put in the right order.
  Pairs of equal rating count half. So unlike with the first two, a system that gives everybody the
  same rating is right in half of the pairs, as one that guesses is.

The other measures are computed over all pairs of entries that are not tied in place:

- Kendall's tau as B. Kerby defines it: the share of pairs in which the lower rated entry was placed
  better. Pairs of equal rating count half;
- log loss and Brier score of the predicted probability that the better placed entry is better
  (`pair_scores`). Where draws are outcomes (`shared_scores`), two entries that share a place drew,
  and both scores are computed over three outcomes (`pair_scores_with_draws`). Otherwise pairs that
  drew are left out, and the draw margin is ignored: the prediction is only about which entry
  performed better. A pair in which neither entry finished is not a draw and is always left out.

Averages over rounds weigh a round by its number of entries n. Kendall's tau weighs it by its number
of pairs. Section 6.3 of the paper defines these measures, except Kendall's tau and the two scores.

Entries are sorted by rating once, and inversions are counted from the positions. In
rounds of more than EXACT entries, log loss and Brier score do not use all pairs. They use the pairs
that are d places apart, for STRIDES distances d. The distances are the same on every run and spread
evenly, so that each entry is compared with as many others, near and far. On Codeforces this changes
the log loss of a whole evaluation by 0.0004.
"""

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import giving, inlined, kernel
from stream_rater.evaluation.measures import FACTS_OF, FIELDS, MEASURES, OF_PAIRS
from stream_rater.rating.elementary import log
from stream_rater.rating.elo_mmr.performance import team
from stream_rater.rating.model import DID_NOT_FINISH, Places, count_ranked, tie_bounds
from stream_rater.rating.normal import below

EXPERIENCED, PAIR_INVERSION, RANK_DEVIATION, ORDER = range(4)
ENTRIES, PAIR_INVERSION_ALL, RANK_DEVIATION_ALL, ORDER_ALL, PAIRS, KENDALL_TAU = range(4, 10)
SCORED, LOG_LOSS, BRIER, PAIRS_SCORED, PAIRS_DRAWN, PAIRS_UNFINISHED = range(10, 16)
"""The numbers of the columns of FIELDS. They stand here as numbers, because a change of this file
compiles the kernels again, and a change of another file does not. A test compares them."""

LEAST_ROUNDS = 5
EXACT = 64  # All pairs are scored in a round of up to this many entries.
STRIDES = 16
LEAST_PROBABILITY = 1e-15
"""Probabilities are clipped to [LEAST_PROBABILITY, 1 - LEAST_PROBABILITY]."""
FACTORS_PER_LOG = 8
"""How many probabilities are multiplied for each logarithm: 1e-15 ** 8 is still a normal float."""


def averages(scores: Floats) -> dict[str, float | None]:
    """The `average` of each measure over the rounds with these (R, len(FIELDS)) scores."""
    return {measure: average(scores, measure) for measure in MEASURES}


def average(scores: Floats, measure: str) -> float | None:
    """The weighted average of a measure over (R, len(FIELDS)) scores; None if all weights are 0."""
    values, weights = values_and_weights(scores, measure)
    total = float(weights.sum())
    return float(values @ weights) / total if total > 0.0 else None


def values_and_weights(scores: Floats, measure: str) -> tuple[Floats, Floats]:
    """(R,) the value of a measure for each round, and (R,) each round's weight in the average."""
    weight = FIELDS.index(FACTS_OF[measure].weight)
    return scores[:, FIELDS.index(measure)], scores[:, weight]


@kernel
def by_rating(mu: Floats) -> Ints:
    """(n,) the entries by descending rating. Entries of equal rating keep their order."""
    return np.argsort(-mu, kind="mergesort")


@kernel
def inversions(place: Places, position: Ints) -> int:
    """The number of pairs that do not tie in place and whose order by `position` is the opposite of
    their order by place. `position` is a permutation of [0, n). Entries come in order of place.

    A Fenwick tree has the number of better placed entries at each position or behind it."""
    n, first, total = len(place), 0, 0
    tree = np.zeros(n + 1, np.int64)
    for i in range(n):
        if place[i] != place[first]:
            for j in range(first, i):
                at = n - position[j]
                while at <= n:
                    tree[at] += 1
                    at += at & -at
            first = i
        at = n - 1 - position[i]
        while at > 0:
            total += tree[at]
            at -= at & -at
    return total


@kernel
def compare(place: Places, mu: Floats, order: Ints) -> tuple[float, float, float, float]:
    """Compare the order of places with the order of ratings. `order` is `by_rating(mu)`. Entries
    come in order of place. Returns the pair inversion in %, the rank deviation in %, the number of
    pairs not tied in place, and the share of these pairs that the ratings predicted wrongly. If all
    entries tie, all four values are 0 and have no meaning."""
    n = len(place)
    lo, hi = tie_bounds(place)
    pairs = 0.5 * n * (n - 1)
    untied, first = pairs, 0
    while first < n:
        size = hi[first] + 1 - first
        untied -= 0.5 * size * (size - 1)
        first += size
    if untied == 0.0:
        return 0.0, 0.0, 0.0, 0.0
    position = np.empty(n, np.int64)
    deviation, equal, same_rating, same_both = 0.0, 0.0, 0, 0
    for i in range(n):
        entry = order[i]
        position[entry] = i
        deviation += max(lo[entry] - i, 0) + max(i - hi[entry], 0)
        if i > 0 and mu[entry] == mu[order[i - 1]]:
            same_rating += 1
            same_both = same_both + 1 if place[entry] == place[order[i - 1]] else 0
            equal += same_rating - same_both
        else:
            same_rating = same_both = 0
    wrong = inversions(place, position)
    agreeing = 100.0 * (1.0 - wrong / pairs)
    return agreeing, 100.0 * deviation / (n * (n - 1.0)), untied, (wrong + 0.5 * equal) / untied


@giving
def distances_of(n: int) -> Ints:
    """The distances d at which pairs of n entries are scored: all, or STRIDES beyond EXACT."""
    if n <= EXACT:
        return np.arange(1, n)
    found = np.empty(STRIDES, np.int64)
    for k in range(STRIDES):
        found[k] = 1 + (2 * k + 1) * (n - 1) // (2 * STRIDES)
    return found


@kernel
def scored_distances(n: int) -> Ints:
    """Do the same as `distances_of`, for callers that are not compiled."""
    return distances_of(n)


@inlined
def _score_pairs(
    place: Places, mu: Floats, variance: Floats, other_place: Places, other_mu: Floats,
    other_variance: Floats, upset: float, product: Floats, square: Floats, scored: Ints,
) -> None:  # fmt: skip
    """Score each entry against the later entry at the same index of the `other_` arrays. p is the
    probability that the earlier entry is better. `product` is multiplied by p, (1 - p)^2 is added
    to `square`, and 1 is added to `scored`. Pairs that tie in place change nothing. The loop runs
    over arrays, so that the processor works on several entries at once."""
    for i in range(len(place)):
        z = (mu[i] - other_mu[i]) / np.sqrt(variance[i] + other_variance[i])
        p = upset + (1.0 - 2.0 * upset) * below(z)
        p = min(max(p, LEAST_PROBABILITY), 1.0 - LEAST_PROBABILITY)
        tied = place[i] == other_place[i]
        p = 1.0 if tied else p
        product[i] *= p
        square[i] += (1.0 - p) * (1.0 - p)
        scored[i] += 0 if tied else 1


@kernel
def pair_scores(
    place: Places, mu: Floats, variance: Floats, upset: float
) -> tuple[float, float, int]:
    """The mean log loss and the mean Brier score of P(better placed entry is better), and the
    number of pairs. The probability is `upset` + (1 - 2 `upset`) Phi((mu_i - mu_j) /
    sqrt(variance_i + variance_j)), as in `rating.wins`. Pairs tied in place are left out."""
    n, surprise = len(place), 0.0
    product, square, scored = np.ones(n), np.zeros(n), np.zeros(n, np.int64)
    distances = distances_of(n)
    for k in range(len(distances)):
        d = distances[k]
        _score_pairs(
            place[: n - d], mu[: n - d], variance[: n - d], place[d:], mu[d:], variance[d:],
            upset, product[: n - d], square[: n - d], scored[: n - d],
        )  # fmt: skip
        if (k + 1) % FACTORS_PER_LOG == 0 or k + 1 == len(distances):
            for i in range(n):
                surprise -= log(product[i])
                product[i] = 1.0
    pairs = int(np.sum(scored))
    squares: float = np.sum(square)
    if pairs == 0:  # all pairs at these distances are tied
        return 0.0, 0.0, 0
    return surprise / pairs, squares / pairs, pairs


@kernel
def pair_scores_with_draws(
    place: Places, mu: Floats, variance: Floats, margin: float, upset: float
) -> tuple[float, float, int]:
    """The mean log loss and the mean Brier score over three outcomes, and the number of pairs.

    The outcomes are that one entry is better than the other by more than `margin`, that it is worse
    by more than `margin`, and that they draw. Of those that do not draw, a part 2 `upset` is chance
    alone. The Brier score is half the sum of (p - happened)^2
    over the outcomes. Pairs in which neither entry finished are left out.
    """
    n, surprise, square, pairs = len(place), 0.0, 0.0, 0
    for d in distances_of(n):
        for i in range(n - d):
            j = i + d
            if place[i] == DID_NOT_FINISH:
                continue
            spread = np.sqrt(variance[i] + variance[j])
            better, worse = (mu[i] - mu[j] - margin) / spread, (mu[j] - mu[i] - margin) / spread
            above, under = below(better), below(worse)
            draw = max(1.0 - above - under, 0.0)
            win = (1.0 - upset) * above + upset * under
            loss = (1.0 - upset) * under + upset * above
            p = draw if place[i] == place[j] else win
            surprise -= log(min(max(p, LEAST_PROBABILITY), 1.0 - LEAST_PROBABILITY))
            square += 0.5 * (win * win + loss * loss + draw * draw + 1.0) - p
            pairs += 1
    if pairs == 0:
        return 0.0, 0.0, 0
    return surprise / pairs, square / pairs, pairs


@giving
def _unscored_pairs(place: Places, untied: int) -> tuple[int, int]:
    """The number of pairs that drew, and the number of pairs in which neither entry finished. Only
    the pairs at scored distances count. `untied` is the number of these that do not tie."""
    n, finished, total, unfinished = len(place), count_ranked(place), 0, 0
    if n <= EXACT:
        unfinished = (n - finished) * (n - finished - 1) // 2
        return n * (n - 1) // 2 - unfinished - untied, unfinished
    for d in distances_of(n):
        total += n - d
        unfinished += max(n - finished - d, 0)
    return total - unfinished - untied, unfinished


@giving
def _experienced(rounds: Ints, order: Ints) -> tuple[Ints, Ints]:
    """Two arrays of the experienced entries. The first has the entries in order of place. The
    second has their indices in the first array, in order of rating."""
    n = len(rounds)
    among, entries, known = np.empty(n, np.int64), np.empty(n, np.int64), 0
    for i in range(n):
        among[i], entries[known] = known, i
        known += rounds[i] >= LEAST_ROUNDS
    chosen, at = np.empty(known, np.int64), 0
    for i in order:
        if rounds[i] >= LEAST_ROUNDS:
            chosen[at] = among[i]
            at += 1
    return entries[:known], chosen


@giving
def _score_round(
    place: Places, mu: Floats, variance: Floats, rounds: Ints, order_by: Floats, draws: bool,
    margin: float, upset: float, out: Floats,
) -> None:  # fmt: skip
    n, order = len(place), by_rating(order_by)
    experienced, experienced_order = _experienced(rounds, order)
    inversion, deviation, untied, wrong = compare(
        place[experienced], order_by[experienced], experienced_order
    )
    if untied > 0.0:
        out[EXPERIENCED], out[PAIR_INVERSION] = len(experienced), inversion
        out[RANK_DEVIATION], out[ORDER] = deviation, 100.0 * (1.0 - wrong)
    inversion, deviation, untied, wrong = compare(place, order_by, order)
    surprise, square, scored = 0.0, 0.0, 0
    if untied > 0.0:
        out[ENTRIES], out[PAIR_INVERSION_ALL], out[RANK_DEVIATION_ALL] = n, inversion, deviation
        out[ORDER_ALL], out[PAIRS], out[KENDALL_TAU] = 100.0 * (1.0 - wrong), untied, wrong
        surprise, square, scored = pair_scores(place, mu, variance, upset)
    out[PAIRS_DRAWN], out[PAIRS_UNFINISHED] = _unscored_pairs(place, scored)
    if draws:
        surprise, square, scored = pair_scores_with_draws(place, mu, variance, margin, upset)
    if scored > 0:
        out[SCORED], out[LOG_LOSS], out[BRIER], out[PAIRS_SCORED] = n, surprise, square, scored


@kernel
def score(
    round_starts: Ints, place: Places, entry_starts: Ints, share: Floats, mu: Floats,
    sigma: Floats, rounds: Ints, initial_mu: float, noise: float, sigmas: float, draws: bool,
    margin: Floats, upset: Floats, shown: Floats,
) -> Floats:  # fmt: skip
    """(R, OF_PAIRS) the scores of a wave's rounds, from the beliefs of its players before the wave
    (`model.Wave`).

    The variance of an entry is the sum of share^2 (sigmas sigma^2 + noise) over its members. The
    factor `sigmas` and `noise` are those of `Chances`. `draws` is whether draws are outcomes.
    `margin` and `upset` (R,) are those of each round.
    Entries are ordered by their displayed ratings `shown` (E,), or by their mean performance if
    `shown` is empty.
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
    out = np.zeros((len(round_starts) - 1, OF_PAIRS))
    for r in range(len(out)):
        a, b = round_starts[r], round_starts[r + 1]
        by = shown[a:b] if len(shown) else entry_mu[a:b]
        _score_round(
            place[a:b], entry_mu[a:b], variance[a:b], played[a:b], by, draws, margin[r], upset[r],
            out[r],
        )  # fmt: skip
    return out
