"""Records what clients of a run see: `python -m tests.judge.recorder FILE --kafka HOST:PORT --http
HOST:PORT` reads committed records, asks the API and follows its streams until its standard input
ends, then reads to the end and closes the file."""

import argparse
import json
import logging
import queue
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from tests.judge.asker import AGAIN_S, ANSWER_S, Asker, Known
from tests.judge.observations import End, Line, Run, Seen, Topic, Writer

NAMES: dict[Topic, str] = {
    "rounds": "round-completed", "changed": "rating-changed", "rejected": "round-rejected",
}  # fmt: skip
POLL_S, AT_ONCE = 0.2, 5000
MOST_WAITING = 100_000


class Recorder:
    def __init__(self, given: argparse.Namespace, writer: Writer) -> None:
        self._given, self._writer = given, writer
        self._stop = threading.Event()
        self._lines: queue.Queue[Line] = queue.Queue(MOST_WAITING)
        self._known = Known()
        self.ends: dict[str, int] = {}

    def run(self) -> None:
        threading.Thread(target=self._wait, daemon=True).start()
        given = self._given
        askers = [
            threading.Thread(target=work, daemon=True)
            for number, address in enumerate(self._given.http)
            for asker in [Asker(given, address, number, self._known, self._lines.put, self._stop)]
            for work in (asker.ask, asker.stream)
        ]
        for each in askers:
            each.start()
        if self._given.kafka:
            self._read()
        else:
            while not self._stop.is_set():
                self._write_lines(POLL_S)
        self._stop.set()
        for each in askers:
            while each.is_alive():
                self._write_lines(POLL_S)
        self._write_lines(0.0)

    def _wait(self) -> None:
        sys.stdin.buffer.read()
        self._stop.set()

    def _write_lines(self, wait_s: float) -> None:
        """Write what other threads have seen."""
        try:
            while True:
                self._writer.write(self._lines.get(wait_s > 0.0, wait_s or None))
                wait_s = 0.0
        except queue.Empty:
            pass

    # --- Kafka ---

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._given.kafka, "group.id": f"judge-{self._given.name}",
                "isolation.level": "read_committed", "enable.auto.commit": False,
                "enable.partition.eof": True, "fetch.message.max.bytes": 2**24,
                "receive.message.max.bytes": 10**9, "topic.metadata.refresh.interval.ms": 2000,
            },
            logger=SILENT,
        )  # fmt: skip
        with closing(consumer):
            topics = self._topics(consumer)
            if topics is None:
                return
            self._begin(topics)
            places = [
                TopicPartition(name, partition, OFFSET_BEGINNING)
                for name, count in topics.items()
                for partition in range(count)
            ]
            consumer.assign(places)
            self._consume(consumer, {(each.topic, each.partition) for each in places})

    def _topics(self, consumer: Consumer) -> dict[str, int] | None:
        """The topics with their partitions, once all are there; None if the run ends before."""
        wanted = {self._given.prefix + name for name in NAMES.values()}
        while True:
            last_look = self._stop.is_set()
            try:
                listed = consumer.list_topics(timeout=ANSWER_S).topics
            except KafkaException:
                listed = {}
            found = {name: len(listed[name].partitions) for name in wanted & listed.keys()}
            if found.keys() == wanted and all(found.values()):
                return found
            if last_look:
                return None
            self._stop.wait(AGAIN_S)

    def _begin(self, topics: dict[str, int]) -> None:
        count = {kind: topics[self._given.prefix + name] for kind, name in NAMES.items()}
        self._writer.write(
            Run(
                reader=self._given.name, partitions=count["rounds"], shards=count["changed"],
                window=self._given.window, threshold=self._given.threshold,
                ladders=self._given.ladders, rated=self._given.rated,
                redisplayed=self._given.redisplayed,
            )
        )  # fmt: skip

    def _consume(self, consumer: Consumer, places: set[tuple[str, int]]) -> None:
        """Read until the run has ended and each partition was read to its end after that."""
        kinds: dict[str, Topic] = {self._given.prefix + name: kind for kind, name in NAMES.items()}
        ended: set[tuple[str, int]] = set()
        stopping = False
        while ended != places:
            if self._stop.is_set() and not stopping:
                stopping = True
                ended.clear()
                # Begin at the same places again: each partition says once more where it ends.
                consumer.assign(
                    [
                        TopicPartition(t, p, self.ends.get(f"{t}/{p}", OFFSET_BEGINNING))
                        for t, p in sorted(places)
                    ]
                )
            for message in consumer.consume(AT_ONCE, POLL_S):
                place = message.topic() or "", message.partition() or 0
                error = message.error()
                if error is None:
                    self._take(kinds[place[0]], message)
                    self.ends[f"{place[0]}/{place[1]}"] = (message.offset() or 0) + 1
                elif stopping and error.name() == "_PARTITION_EOF":
                    ended.add(place)
            self._write_lines(0.0)

    def _take(self, kind: Topic, message: Any) -> None:
        value, key = message.value(), message.key()
        record = Seen(
            t=kind, p=message.partition(), o=message.offset(), at=time.time(),
            v=None if value is None else value.decode("latin-1"),
            key=None if key is None else key.decode("latin-1"),
            h=[
                (name, None if found is None else found.decode("latin-1"))
                for name, found in message.headers() or ()
            ],
            ts=message.timestamp()[1],
        )  # fmt: skip
        self._writer.write(record)
        if self._given.http:
            self._known.see(record)


SILENT = logging.getLogger("tests.judge")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.judge.recorder", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--name", default="reader", help="the name of this reader")
    parser.add_argument("--kafka", default="", help="bootstrap servers; none: HTTP alone")
    parser.add_argument("--prefix", default="", help="of the topics")
    parser.add_argument("--http", action="append", default=[], help="an API, HOST:PORT")
    parser.add_argument("--follow", action="append", default=[], help="a ladder that will be")
    parser.add_argument("--token", default="", help="for the API")
    parser.add_argument("--window", type=int, default=100_000, help="the duplicate window")
    parser.add_argument("--threshold", type=float, default=0.5, help="that of corrections")
    parser.add_argument("--ladders", type=json.loads, help="the ladders, a JSON array; none: any")
    parser.add_argument(
        "--rated", type=json.loads, default={},
        help="a JSON object: the tables `rating` of the ladders file; `*`: the template",
    )  # fmt: skip
    parser.add_argument(
        "--redisplayed", type=json.loads, default={},
        help="a JSON object: from which offsets ladders have other parameters of display",
    )  # fmt: skip
    given = parser.parse_args()
    with closing(Writer(given.file)) as writer:
        if not given.kafka:
            writer.write(Run(reader=given.name))
        recorder = Recorder(given, writer)
        recorder.run()
        writer.write(End(ends=recorder.ends, records=writer.records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
