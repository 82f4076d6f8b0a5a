"""The numbers of an event by `docs/reference/ladders.md` and `docs/internals/mathematics.md`: a
newcomer's, the displayed rating, and Elo-MMR's performances and sigmas."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

DISPLAYED = 2.0  # how many sigmas are subtracted by default
MU_SHOWN = {"codeforces", "glicko2", "elo", "pairwise-elo", "plackett-luce", "thurstone"}
ELO_MMR = {"elo-mmr", "elo-mmx", "elo-r"}
DRIFTING = {"elo-mmr", "elo-mmx", "two-moment"}  # by the day
LIKE_NEWCOMERS_OF_THEIR_FIELD = {"glicko", "bar", "trueskill", "two-moment"}
CLOSE = 1e-6  # relative: a belief keeps the digits of a float of 32 bits
NEAR = 0.1  # points: by so much a performance may be another, which is tabulated in large rounds
MOST_ENTRIES = 30  # of a round whose performances are checked: it takes the square of them


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
        limit = limit if self._spread is None else self._spread[1]
        self._times, self._from = DISPLAYED, limit if self._system in ELO_MMR else 0.0
        display = get("display")
        if isinstance(display, Mapping):
            self._times, self._from = float(display["minus_sigma"]), 0.0
        elif display == "mu" or self._system in MU_SHOWN or (drift and self._system in DRIFTING):
            self._times = 0.0
        self._tie = 0.5 if get("ties") == "split" else 1.0
        self._plain = self._spread is not None and not (
            drift or get("newcomer_weights") or get("dnf") == "not-compared"
        )
        self._seats = set(get("seats") or ())

    def shown(self, mu: float, sigma: float) -> float:
        return max(mu - self._times * (sigma - self._from), self._floor)

    def wrong(self, event: Any, *, is_first: bool) -> Iterator[tuple[str, str]]:
        """The rules that an event breaks by itself, with what it must say."""
        shown = self.shown(event.mu, event.sigma)
        before = self.shown(event.previous_mu, event.previous_sigma)
        if not (_same(event.rating, shown) and _same(event.previous_rating, before)):
            yield "display", f"{before:.9g}->{shown:.9g}"
        if event.provisional != (event.rounds < self.provisional_rounds):
            yield "provisional", f"{self.provisional_rounds} rounds end it"
        began = self.mu if not self.begins_elsewhere else event.previous_mu, self.sigma
        if is_first and not all(map(_same, (event.previous_mu, event.previous_sigma), began)):
            yield "beginning", f"a newcomer has {began}"
        if event.rounds == 0 and not (_same(event.mu, self.mu) and _same(event.sigma, self.sigma)):
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

    def performed(self, round_weight: float, field: Sequence[Any]) -> Iterator[tuple[Any, str]]:
        """By stages 1 and 2 of the mathematics, the events of a round whose numbers are wrong."""
        assert self._spread is not None
        weight, limit = self._spread[0] * round_weight, self._spread[1]
        skill, noise = weight * limit**2, (1.0 + 1.0 / weight) * limit**2
        before = [each.previous_sigma**2 + skill for each in field]
        steep = [math.pi / math.sqrt(3.0 * (each + noise)) for each in before]
        for each, variance in zip(field, before, strict=True):
            x = each.performance
            if (
                not self._excess(x - NEAR, each, field, steep)
                < 0.0
                < self._excess(x + NEAR, each, field, steep)
            ):
                yield each, "performance is not the root of its equation"
            if not _same(each.sigma, 1.0 / math.sqrt(1.0 / variance + 1.0 / noise)):
                yield each, "sigma"
            least, most = sorted((each.previous_mu, x))
            slack = 0.01 * each.previous_sigma
            if not least - slack <= each.mu <= most + slack:
                yield each, f"mu is not towards {x:.6g}"

    def _excess(self, x: float, one: Any, field: Sequence[Any], steep: Sequence[float]) -> float:
        """What the sum over better entries has more than that over worse ones, at x."""
        found = 0.0
        for other, u in zip(field, steep, strict=True):
            loss = 0.5 - 0.5 * math.tanh((other.previous_mu - x) * u / 2.0)
            place, mine = other.rank or math.inf, one.rank or math.inf
            tie = 1.0 if other is one else self._tie
            lost, won = (tie, tie) if place == mine else (place < mine, place > mine)
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
