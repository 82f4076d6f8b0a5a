"""The metrics of `serve`. No metric has a label by player or ladder."""

from functools import cache

import structlog

from stream_rater.contract.errors import REJECTIONS
from stream_rater.runtime.metrics import RegisteredMetrics
from stream_rater.serve.problems import KINDS
from stream_rater.serve.routes import OPERATIONS


class ApiMetrics(RegisteredMetrics):
    """The metrics of one `serve` process."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        super().__init__("stream_rater_serve")
        self._log = log
        self.requests = self._counter(
            "requests_total", "Requests by operation and HTTP status.", ["operation", "status"]
        )
        self.seconds = self._histogram(
            "request_seconds", "Time from the head of a request to its answer.", ["operation"]
        )
        self.events = self._counter("events_total", "Events of rating-changed that were read.")
        self.skipped = self._counter(
            "skipped_total", "Records of rating-changed that are not events."
        )
        self.troubles = self._counter(
            "troubles_total", "Failures of Kafka or Redis after which reading started again."
        )
        self.followers = self._gauge("followers", "Clients that follow changes.")
        self.caught_up = self._gauge(
            "caught_up", "1 if the index has every event that existed at the start, else 0."
        )
        self.lag = self._gauge("lag", "Records of rating-changed that are not in the index yet.")
        self.oldest_reader = self._gauge(
            "oldest_reader_seconds",
            "How long the oldest open transaction has read the index: while it does, the index "
            "grows.",
        )
        self.connections = self._gauge("connections", "Open connections.")
        self.closed_for_room = self._counter(
            "room_total",
            "Connections closed to make room, by cause: too many in all (all), or of one address "
            "(address).", ["cause"],
        )  # fmt: skip
        self.refused = self._counter(
            "refused_total", "Requests that were refused, by error code.", ["code"]
        )
        self.posted = self._counter(
            "rounds_total",
            "Rounds and corrections that clients sent, by outcome: written (Kafka has "
            "acknowledged it), known (its id was sent before), invalid, busy (too many wait for "
            "Kafka), unavailable (Kafka has not acknowledged it).", ["outcome"],
        )  # fmt: skip
        self.acknowledged = self._histogram(
            "acknowledged_seconds",
            "Time from a valid request with rounds to Kafka's acknowledgement.",
        )
        self.unacknowledged = self._gauge(
            "unacknowledged", "Rounds and corrections that wait for Kafka's acknowledgement."
        )
        for outcome in ("written", "known", "invalid", "busy", "unavailable"):
            self.posted.labels(outcome)
        for cause in ("all", "address"):
            self.closed_for_room.labels(cause)
        for code in {**KINDS, **REJECTIONS}:
            self.refused.labels(code)
        # Each metric with its labels is looked up once.
        self._request_counter = cache(lambda name, status: self.requests.labels(name, str(status)))
        self._request_timer = cache(self.seconds.labels)
        for each in OPERATIONS:
            for status in (200, 500, 503):
                self._request_counter(each.name, status)
            self._request_timer(each.name)

    def record_request(self, operation: str, status: int, seconds: float) -> None:
        """Record that a request was answered."""
        self._request_counter(operation, status).inc()
        self._request_timer(operation).observe(seconds)

    def failed(self, operation: str) -> None:
        """Record that a request failed because of a bug. Call this where the exception is
        handled."""
        self._log.exception("request failed", operation=operation)
