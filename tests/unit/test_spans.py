"""Spans around the work of a traced round, by whatever SDK there is; what of a trace is carried."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace as api
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import STATE_LENGTH, Headers, Trace, trace_of
from stream_rater.pipeline.observer import Traced, no_spans
from stream_rater.runtime import log, observer
from stream_rater.runtime.engine import EmbeddedEngine
from stream_rater.runtime.metrics import Metrics
from stream_rater.runtime.observer import ServiceObserver
from tests.builders.cases import cases
from tests.rounds import as_json, ranked

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PLAYERS = ("ann", "cy")  # In two shards.
UNSAMPLED = f"00-{3:032x}-{3:016x}-00"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(api, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def an_engine() -> EmbeddedEngine:
    """Both machines, watched as the service watches them."""
    observers = {
        role: ServiceObserver(
            Metrics(),
            role,
            log.logger(role),
            observer.spans_of(role, topic, f"{role}s", "worker-1"),
        )
        for role, topic in (("estimator", "rounds"), ("updater", "parts"))
    }
    return EmbeddedEngine(estimating=observers["estimator"], updating=observers["updater"])


def rated(engine: EmbeddedEngine, *headers: list[tuple[str, bytes]]) -> None:
    for number, each in enumerate(headers):
        value = as_json(*ranked([1, 2], PLAYERS), round_id=f"r{number}")
        engine.log.submit(0, value, each, received_s=2e9)
    engine.settle()


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_a_traced_round_has_its_spans(exported: InMemorySpanExporter) -> None:
    """One for its estimate, and one per shard for its update. Untraced rounds have none."""
    rated(
        an_engine(), [], [("traceparent", PARENT.encode()), ("tracestate", b"rojo=1")],
        [("traceparent", UNSAMPLED.encode())],
    )  # fmt: skip
    found = exported.get_finished_spans()
    assert [each.name for each in found] == ["estimate", "update", "update"]
    for span in found:
        assert span.context is not None and span.parent is not None
        assert f"{span.context.trace_id:032x}" == PARENT[3:35]
        assert f"{span.parent.span_id:016x}" == PARENT[36:52]
        assert span.context.trace_state.to_header() == "rojo=1"
        assert span.kind is api.SpanKind.CONSUMER
        assert attributes(span)["stream_rater.round_id"] == "r1"
        assert attributes(span)["stream_rater.ladder"] == "ranked-eu"
        assert span.end_time is not None and span.start_time is not None
        assert span.end_time > span.start_time
        assert attributes(span)["messaging.client.id"] == "worker-1"
    of_messaging = {k: v for k, v in attributes(found[0]).items() if k.startswith("messaging.")}
    assert of_messaging == {
        "messaging.system": "kafka", "messaging.operation.name": "estimate",
        "messaging.operation.type": "process", "messaging.client.id": "worker-1",
        "messaging.consumer.group.name": "estimators", "messaging.destination.name": "rounds",
        "messaging.destination.partition.id": "0", "messaging.kafka.offset": 1,
    }  # fmt: skip
    assert len({attributes(each)["messaging.destination.partition.id"] for each in found[1:]}) == 2


def test_what_is_sent_does_not_depend_on_who_watches(exported: InMemorySpanExporter) -> None:
    """Bytes and headers are the same. A span during trouble ends with an error."""
    watched, alone = an_engine(), EmbeddedEngine()
    for engine in (watched, alone):
        rated(engine, [("traceparent", PARENT.encode())], [])
    assert exported.get_finished_spans()
    assert watched.log.parts == alone.log.parts
    assert watched.log.changed == alone.log.changed
    assert {each.trace for shard in alone.log.changed for each in shard} == {Trace(PARENT), None}
    exported.clear()
    around = observer.spans_of("updater", "parts")
    with pytest.raises(LogTrouble), around([Traced(Trace(PARENT), "eu", "r1", 3, 7)]):
        raise LogTrouble("kafka: away")
    (span,) = exported.get_finished_spans()
    assert span.status.status_code is api.StatusCode.ERROR
    assert span.status.description == "kafka: away"
    assert attributes(span)["error.type"] == "LogTrouble"
    assert [event.name for event in span.events] == ["exception"]


def test_without_the_api_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at who is traced, even."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert observer.spans_of("updater", "parts") is no_spans
    rounds = iter([Traced(Trace(PARENT), "eu", "r1", 3, 7)])
    assert isinstance(no_spans(rounds), nullcontext)
    assert len(list(rounds)) == 1


# --- trace context: what is valid is carried to the byte ------------------------------------------


def sent(parent: bytes, *states: bytes) -> Headers:
    first: Headers = [("content-type", b"application/json"), ("traceparent", parent)]
    return [*first, *(("tracestate", state) for state in states)]


@cases("parent", [PARENT, PARENT[:-2] + "00", "cc" + PARENT[2:]])
@cases("state", ["", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "~" * 512])
def test_what_is_valid_is_carried(parent: str, state: str) -> None:
    """Of a later version of the recommendation, too; sampled or not."""
    trace = trace_of(sent(parent.encode(), state.encode()))
    assert trace == Trace(parent, state)
    carried = ("traceparent", parent.encode()), ("tracestate", state.encode())
    assert trace.headers() == [each for each in carried if each[1]]


BAD_PARENTS = [
    "", "00", PARENT[:-1], PARENT + "0", PARENT + "\n", PARENT + "-00", "\n" + PARENT[1:],
    PARENT.upper(), "ff" + PARENT[2:], "0g" + PARENT[2:], PARENT.replace("-", "_"),
    "00-" + 32 * "0" + PARENT[35:], PARENT[:36] + 16 * "0" + "-01", PARENT[:-1] + "\u0661",
    PARENT[:-2] + "\ufffd1", " " + PARENT, 999 * "0",
]  # fmt: skip
BAD_STATES = [b"a=\n", b"a=1\n", b"a=\x00", b"a=\xff", b"\xc3\xa9=1", b"a" * 513]


def test_what_is_not_valid_is_left_behind() -> None:
    """A parent goes on without an invalid state. The first header of a name counts."""
    for parent in BAD_PARENTS:
        assert trace_of(sent(parent.encode(), b"rojo=1")) is None, parent
    for state in BAD_STATES:
        assert trace_of(sent(PARENT.encode(), state)) == Trace(PARENT), state
    twice = [*sent(PARENT.encode(), b"a=1", b"b=2"), ("traceparent", b"00")]
    assert trace_of(twice) == Trace(PARENT, "a=1")
    without: list[Headers] = [[("Traceparent", PARENT.encode())], [("traceparent", None)], []]
    assert [trace_of(each) for each in without] == [None] * 3


@given(st.binary(max_size=80), st.binary(max_size=STATE_LENGTH + 20))
def test_any_bytes_have_a_verdict(parent: bytes, state: bytes) -> None:
    """Nothing is raised, and what is carried is what came."""
    assert trace_of(sent(parent, state)) is None
    trace = trace_of(sent(PARENT.encode(), state))
    assert trace is not None
    assert trace.state.encode() in (state, b"")
