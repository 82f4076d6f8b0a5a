"""The numbers of an event, as `docs/reference/ladders.md` and `docs/internals/mathematics.md` state
them: how a newcomer begins, which rating is shown of mu and sigma, and, of Elo-MMR, the
performance of each player and by how much sigma falls.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

DISPLAYED = 2.0  # how many sigmas are subtracted by default
MU_SHOWN = {"codeforces", "glicko2", "elo", "pairwise-elo", "plackett-luce", "thurstone"}
ELO_MMR = {"elo-mmr", "elo-mmx", "elo-r"}
LIKE_NEWCOMERS_OF_THEIR_FIELD = {"glicko", "bar", "trueskill", "two-moment"}
CLOSE = 1e-6  # relative: a belief keeps the digits of a float of 32 bits
NEAR = 0.1  # points: by so much a performance may be another, which is tabulated in large rounds
MOST_ENTRIES = 30  # of a round whose performances are checked: it takes the square of them


class Numbers(NamedTuple):
    """What an event says of a player of a round."""

    place: float  # the rank; infinite for a player who did not finish
    mu: float
    sigma: float
    performance: float
    after: tuple[float, float]  # mu and sigma


class Documented:
    """What a ladder's parameters say, by the names and defaults of the reference."""

    def __init__(self, rating: Mapping[str, Any]) -> None:
        get, self._system = rating.get, rating["system"]
        self.mu, self.sigma = float(get("initial_mu", 1500)), float(get("initial_sigma", 350))
        self.provisional_rounds: int = get("provisional_rounds", 5)
        self.begins_elsewhere = self._system in LIKE_NEWCOMERS_OF_THEIR_FIELD or "fixed" in rating
        self._floor = -math.inf if get("floor") is None else float(rating["floor"])
        drift = get("drift_per_day", 16 if self._system == "two-moment" else 0)
        self._spread = _spread(rating) if self._system == "elo-mmr" else None
        limit = float(get("sigma_limit") or (100 if self._system == "elo-r" else 0))
        if self._spread is not None:
            limit = self._spread[1]
        display = get("display")
        if isinstance(display, Mapping):
            self._times, self._from = float(display["minus_sigma"]), 0.0
        elif display == "mu" or self._system in MU_SHOWN or (drift and self._drifts_by_the_day()):
            self._times, self._from = 0.0, 0.0
        else:
            self._times = DISPLAYED
            self._from = limit if self._system in ELO_MMR else 0.0
        self._tie = 0.5 if get("ties") == "split" else 1.0
        self._plain = self._spread is not None and not (
            drift or get("newcomer_weights") or get("skip_all_tied") or get("dnf") == "not-compared"
        )
        self._seats = set(get("seats") or ())

    def _drifts_by_the_day(self) -> bool:
        return self._system in ("elo-mmr", "elo-mmx", "two-moment")

    def shown(self, mu: float, sigma: float) -> float:
        return max(mu - self._times * (sigma - self._from), self._floor)

    def newcomer(self) -> float:
        """The rating that is shown of one who has not played."""
        return self.shown(self.mu, self.sigma)

    def wrong(self, event: Any, *, is_first: bool) -> Iterator[tuple[str, str]]:
        """The rules that an event breaks by itself, with what it must say."""
        shown = self.shown(event.mu, event.sigma)
        before = self.shown(event.previous_mu, event.previous_sigma)
        if not (_same(event.rating, shown) and _same(event.previous_rating, before)):
            yield "display", f"{before:.9g}->{shown:.9g}"
        if event.provisional != (event.rounds < self.provisional_rounds):
            yield "provisional", f"{self.provisional_rounds} rounds end it"
        began = self.mu if not self.begins_elsewhere else event.previous_mu, self.sigma
        if is_first and not _both_same((event.previous_mu, event.previous_sigma), began):
            yield "beginning", f"a newcomer has {began}"
        if event.rounds == 0 and not _both_same((event.mu, event.sigma), (self.mu, self.sigma)):
            yield "beginning", f"one without rounds has {self.mu}, {self.sigma}"
        if self._system in ELO_MMR and not event.sigma > 0.0:
            yield "sigma", "it is above 0"

    def judges(self, body: Mapping[str, Any]) -> bool:
        """Whether the numbers of this round can be computed from its events alone."""
        entries = body["standings"]
        return (
            self._plain and len(entries) <= MOST_ENTRIES and "performance_ceiling" not in body
            and all("player" in each and each.get("seat") not in self._seats for each in entries)
        )  # fmt: skip

    def performed(self, round_weight: float, field: Sequence[Numbers]) -> Iterator[tuple[int, str]]:
        """By stages 1 and 2 of the mathematics, the players of a round whose numbers are wrong."""
        assert self._spread is not None
        weight, limit = self._spread[0] * round_weight, self._spread[1]
        skill, noise = weight * limit**2, (1.0 + 1.0 / weight) * limit**2
        steep = [
            math.pi / math.sqrt(3.0 * (each.sigma**2 + skill + noise)) for each in field
        ]  # fmt: skip
        for at, each in enumerate(field):
            low, high = (
                self._excess(each.performance + by, each, at, field, steep) for by in (-NEAR, NEAR)
            )
            if not low < 0.0 < high:
                yield at, f"performance {each.performance:.6g} is not the root of its equation"
            mu, sigma = each.after
            if not _same(sigma, 1.0 / math.sqrt(1.0 / (each.sigma**2 + skill) + 1.0 / noise)):
                yield at, f"sigma {each.sigma:.6g}->{sigma:.6g}"
            least, most = sorted((each.mu, each.performance))
            slack = 0.01 * each.sigma
            if not least - slack <= mu <= most + slack:
                yield at, f"mu {each.mu:.6g}->{mu:.6g} is not towards {each.performance:.6g}"

    def _excess(
        self, x: float, one: Numbers, at: int, field: Sequence[Numbers], steep: Sequence[float]
    ) -> float:
        """What the sum over better entries has more than that over worse ones, at x."""
        found = 0.0
        for i, (other, u) in enumerate(zip(field, steep, strict=True)):
            loss = 1.0 / (1.0 + math.exp(max(-700.0, min(700.0, (other.mu - x) * u))))
            tie = 1.0 if i == at else self._tie
            lost = tie if other.place == one.place else float(other.place < one.place)
            won = tie if other.place == one.place else float(other.place > one.place)
            found += u * (lost * loss - won * (1.0 - loss))
        return found


def _spread(rating: Mapping[str, Any]) -> tuple[float, float]:
    """Weight and sigma in the limit: gamma^2 = w s^2, beta^2 = (1 + 1/w) s^2."""
    if "sigma_limit" in rating:
        return float(rating["weight_limit"]), float(rating["sigma_limit"])
    gamma, beta = rating["gamma"] ** 2, rating["beta"] ** 2
    limit = (math.sqrt(gamma * gamma + 4.0 * gamma * beta) - gamma) / 2.0
    return gamma / limit, math.sqrt(limit)


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= CLOSE * max(1000.0, abs(a), abs(b))


def _both_same(some: tuple[float, float], others: tuple[float, float]) -> bool:
    return all(map(_same, some, others))
