"""An input whose client is a double, for tests of what it does with the client's records."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import TopicPartition

from stream_rater.adapters.kafka.consumer import Input
from stream_rater.config.settings import Settings


class Client:
    """A consumer of one partition, which remembers where it was sought. Other calls do nothing."""

    end = 0
    """The end of the partition."""

    def __init__(self) -> None:
        self.at = 0

    def seek(self, to: TopicPartition) -> None:
        self.at = to.offset

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, self.end

    def memberid(self) -> str:
        return "member"

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


@contextmanager
def input_of_nobody() -> Iterator[Input]:
    """The input of a broker that is not there."""
    found = Input(Settings(kafka="127.0.0.1:1"), "t", "g")
    consumer = found.consumer
    yield found
    consumer.close()


@contextmanager
def input_with(client: Client) -> Iterator[Input]:
    """An input that owns partition 0, by this client."""
    with input_of_nobody() as found:
        found.consumer = client  # type: ignore[assignment]
        found._owned, found._subscribed = {0}, True
        yield found
