"""What the demo measures, from the events as they arrive."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Event = Mapping[str, Any]


@dataclass
class Phase:
    """The rating changes of one stretch of rounds.

    `completed_at` is the time at which the backend gave a round to Kafka's client. Arrivals are
    measured here, by the clock of the same machine.
    """

    warm_up_s: float = 0.0
    """Latencies count from so many seconds after the first report, when all are connected."""
    latencies_ms: list[float] = field(default_factory=list)
    """The times from a round's report until each of its rating changes arrived, after warm-up."""
    seen: set[str] = field(default_factory=set)
    """The ids of the events that have arrived."""
    rounds: set[str] = field(default_factory=set)
    changes: int = 0
    """The number of rating changes received. One that came twice counts twice."""
    arrivals_s: list[tuple[float, int]] = field(default_factory=list)
    """When rating changes arrived, and how many had by then."""
    first_report_s: float = math.inf

    def take(self, events: Sequence[Event], arrived_s: float) -> None:
        """Count events that arrived at that Unix time."""
        if not events:
            return
        reported_s = [datetime.fromisoformat(e["completed_at"]).timestamp() for e in events]
        self.first_report_s = min(self.first_report_s, *reported_s)
        warm_s = self.first_report_s + self.warm_up_s
        self.latencies_ms += [1000.0 * (arrived_s - each) for each in reported_s if each >= warm_s]
        self.seen.update(event["event_id"] for event in events)
        self.rounds.update(event["round_id"] for event in events)
        self.changes += len(events)
        self.arrivals_s.append((arrived_s, self.changes))

    @property
    def twice(self) -> int:
        """The number of rating changes that were received again."""
        return self.changes - len(self.seen)

    @property
    def per_second(self) -> float:
        """Rating changes per second, from the first arrival to the last."""
        if len(self.arrivals_s) < 2:
            return 0.0
        (first_s, early), (last_s, _) = self.arrivals_s[0], self.arrivals_s[-1]
        return (self.changes - early) / (last_s - first_s)

    def percentile_ms(self, percent: float) -> float:
        """The latency that so many percent of the rating changes did not exceed."""
        return percentile(self.latencies_ms, percent)


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile; nan without values."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(percent / 100.0 * len(ordered)) - 1)]


def agreement(ratings: Mapping[str, float], skills: Mapping[str, float]) -> float:
    """Share of all pairs of rated players that the ratings order as the hidden skills do."""
    players = [player for player in ratings if player in skills]
    agreeing = pairs = 0
    for i, a in enumerate(players):
        for b in players[:i]:
            pairs += 1
            agreeing += (ratings[a] - ratings[b]) * (skills[a] - skills[b]) > 0.0
    return agreeing / pairs if pairs else math.nan
