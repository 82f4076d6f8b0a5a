"""Spans of the rounds that carry a trace, by OpenTelemetry's API where it is installed.

The spans of a round are children of the span that its headers name. They are recorded by the SDK
that the process was started with (`opentelemetry-instrument stream-rater run`). Without the API,
which the extra `tracing` brings, nothing here is called.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from stream_rater.pipeline.observer import Traced, no_spans

try:
    from opentelemetry import trace
    from opentelemetry.trace.propagation import tracecontext
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = True

NAMES: Final = {"estimator": "estimate", "updater": "update"}  # By role, the name of its spans.


def spans_of(role: str, topic: str) -> Callable[[Iterable[Traced]], AbstractContextManager[object]]:
    """A context manager that records a span for each traced round of a topic."""
    return _Spans(NAMES[role], topic).around if AVAILABLE else no_spans


class _Spans:
    def __init__(self, name: str, topic: str) -> None:
        self._name, self._topic = name, topic
        self._tracer = trace.get_tracer("stream-rater")
        self._reader = tracecontext.TraceContextTextMapPropagator()

    @contextmanager
    def around(self, rounds: Iterable[Traced]) -> Iterator[None]:
        """One span per round, each as long as the block. They record an exception of the block."""
        spans = [self._start_span(each) for each in rounds]
        try:
            yield
        except Exception as error:
            for span in spans:
                span.record_exception(error)
                span.set_status(trace.StatusCode.ERROR, str(error))
            raise
        finally:
            for span in spans:
                span.end()

    def _start_span(self, traced: Traced) -> "trace.Span":
        carried = {name: value.decode() for name, value in traced.trace.headers()}
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.destination.name": self._topic,
            "messaging.destination.partition.id": str(traced.partition),
            "messaging.kafka.offset": traced.offset,
            "stream_rater.ladder": traced.ladder,
            "stream_rater.round_id": traced.round_id,
        }
        context = self._reader.extract(carried)
        return self._tracer.start_span(self._name, context, trace.SpanKind.CONSUMER, attributes)
