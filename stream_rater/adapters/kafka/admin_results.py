"""Reads the results of requests to Kafka's admin API, and translates their errors."""

from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from stream_rater.adapters.access import trouble_of
from stream_rater.contract.errors import LogTrouble

TIMEOUT_S = 10.0
"""The longest wait for a result."""

UNKNOWN_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART


def offset_of(future: Any) -> int:
    """The offset from a ListOffsets response. Right after the loss of a leader, the response has
    neither an error nor an offset: this raises LogTrouble."""
    offset: int = result_of(future).offset
    if offset < 0:
        raise LogTrouble("kafka: a partition's leader did not return its offset")
    return offset


def result_of(future: "Future[Any]") -> Any:
    """The result of a request. Raises LogTrouble or Denied."""
    try:
        return future.result(TIMEOUT_S)
    except KafkaException as error:
        raise trouble_of(error) from None
    except TimeoutError:
        raise LogTrouble(f"kafka: no answer within {TIMEOUT_S:g} s") from None


def knows_no_topic(asked: "Future[Any]") -> bool:
    """Whether a broker answered that the topic does not exist."""
    error = asked.exception() if asked.done() else None
    return isinstance(error, KafkaException) and error.args[0].code() == UNKNOWN_TOPIC


def copies_of(known: Any) -> list[tuple[int, int]]:
    """For each partition of a topic, the number of in-sync replicas and of all replicas."""
    found = known.partitions
    return [(len(found[p].isrs), len(found[p].replicas)) for p in sorted(found)]
