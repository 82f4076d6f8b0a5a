"""Records what clients of a run see, in a process of its own:
`python -m tests.judge.recorder FILE --kafka HOST:PORT --http HOST:PORT`.

It reads the topics read committed, asks the API, and follows its streams, until its standard input
ends. Then it reads what there is to the end, and closes the file.
"""

import argparse
import http.client
import json
import logging
import queue
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from tests.judge.observations import Answered, End, Line, Run, Seen, Streamed, Topic, Writer

NAMES: dict[Topic, str] = {
    "rounds": "round-completed", "changed": "rating-changed", "rejected": "round-rejected",
}  # fmt: skip
ANSWER_S, AGAIN_S, PACE_S = 60.0, 0.1, 0.01
"""Without an answer for so long, a connection is given up; the pause before another is made, and
between two questions."""
POLL_S, AT_ONCE = 0.2, 5000
KNOWN_PLAYERS = 200
"""The players of a ladder about whom is asked."""
MOST_WAITING = 100_000


class Recorder:
    """Reads, asks, and writes."""

    def __init__(self, given: argparse.Namespace, writer: Writer) -> None:
        self._given, self._writer = given, writer
        self._stop = threading.Event()
        self._lines: queue.Queue[Line] = queue.Queue(MOST_WAITING)
        self._offsets: dict[str, int] = {}
        """For each ladder, the offset of the last change that was read."""
        self.ends: dict[str, int] = {}

    def run(self) -> None:
        """Record until standard input ends."""
        threading.Thread(target=self._wait, daemon=True).start()
        askers = [
            threading.Thread(target=ask, args=(address, number), daemon=True)
            for number, address in enumerate(self._given.http)
            for ask in (self._ask, self._streams)
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
                ladders=self._given.ladders, redisplayed=self._given.redisplayed,
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
        self._writer.write(
            Seen(
                t=kind, p=message.partition(), o=message.offset(), at=time.time(),
                v=None if value is None else value.decode("latin-1"),
                key=None if key is None else key.decode("latin-1"),
                h=[
                    (name, None if found is None else found.decode("latin-1"))
                    for name, found in message.headers() or ()
                ],
                ts=message.timestamp()[1],
            )
        )  # fmt: skip
        if kind == "changed" and value is not None and self._given.http:
            event = msgspec.json.decode(value)
            self._offsets[event["ladder"]] = event["offset"]

    # --- the API ---

    def _ask(self, address: str, number: int) -> None:
        """Ask one question after the other, on one connection for as long as it lives."""
        chance, count = Random(number), 0
        while not self._stop.is_set():
            count += 1
            name = f"{self._given.name}-{number}-{count}"
            try:
                with closing(http.client.HTTPConnection(address, timeout=ANSWER_S)) as connection:
                    while not self._stop.is_set():
                        self._round_of_questions(connection, name, chance)
            except (OSError, http.client.HTTPException, msgspec.DecodeError):
                self._stop.wait(AGAIN_S)

    def _round_of_questions(
        self, connection: http.client.HTTPConnection, name: str, chance: Random
    ) -> None:
        listed = self._get(connection, name, "/v1/ladders")
        for ladder in () if listed is None else listed["ladders"]:
            at = f"/v1/ladders/{quote(ladder, safe='')}"
            board = self._get(connection, name, f"{at}/leaderboard?limit={KNOWN_PLAYERS}")
            rows = [] if board is None else board["rows"]
            for row in chance.sample(rows, min(5, len(rows))):
                path = f"{at}/players/{quote(row['player'], safe='')}"
                if chance.random() < 0.5 and ladder in self._offsets:
                    path += f"?min_offset={self._offsets[ladder]}&wait=1"
                self._get(connection, name, path)
                if self._stop.wait(PACE_S):
                    return
        if self._stop.wait(AGAIN_S):
            return

    def _get(self, connection: http.client.HTTPConnection, name: str, path: str) -> Any:
        """The body of an answer of 200; None of another one."""
        began_s = time.time()
        connection.request("GET", path, headers=self._headers())
        answer = connection.getresponse()
        body = answer.read()
        line = Answered(
            c=name, path=path, status=answer.status, body=msgspec.Raw(body), began=began_s,
            at=time.time(),
        )  # fmt: skip
        self._lines.put(line)
        return msgspec.json.decode(body) if answer.status == 200 else None

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._given.token}"} if self._given.token else {}

    def _streams(self, address: str, number: int) -> None:
        """Follow each ladder from its first change on."""
        followed: dict[str, threading.Thread] = {}
        while not self._stop.wait(AGAIN_S):
            try:
                with closing(http.client.HTTPConnection(address, timeout=ANSWER_S)) as connection:
                    connection.request("GET", "/v1/ladders", headers=self._headers())
                    answer = connection.getresponse()
                    body = answer.read()
                listed = msgspec.json.decode(body)["ladders"] if answer.status == 200 else []
            except (OSError, http.client.HTTPException, msgspec.DecodeError):
                continue
            for ladder in [*self._given.follow, *listed]:
                if ladder not in followed:
                    name = f"{self._given.name}-{number}-stream-{ladder}"
                    followed[ladder] = threading.Thread(
                        target=self._follow, args=(address, ladder, name), daemon=True
                    )
                    followed[ladder].start()
        for each in followed.values():
            each.join(2.0 * ANSWER_S)

    def _follow(self, address: str, ladder: str, name: str) -> None:
        """Follow one ladder, and resume the stream whenever it breaks off."""
        last, whole = "0", False
        path = f"/v1/ladders/{quote(ladder, safe='')}/changes"
        deadline_s = float("inf")
        while not whole and time.monotonic() < deadline_s:
            stopping = self._stop.is_set()
            if stopping:  # once more from where it was: what is missing comes before a lone id
                deadline_s = min(deadline_s, time.monotonic() + ANSWER_S)
            try:
                with closing(http.client.HTTPConnection(address, timeout=2.0)) as connection:
                    headers = self._headers() | {"Last-Event-ID": last}
                    connection.request("GET", path, headers=headers)
                    answer = connection.getresponse()
                    if answer.status == 200:
                        last, whole = self._events(answer, ladder, name, last, stopping)
            except (OSError, http.client.HTTPException):
                pass
            self._stop.wait(AGAIN_S)

    def _events(
        self, answer: http.client.HTTPResponse, ladder: str, name: str, last: str, once: bool
    ) -> tuple[str, bool]:
        """Take events until the stream ends, or `once` all that was missing came. Returns the last
        id, and whether that is so."""
        found: dict[str, str] = {}
        try:
            while line := answer.readline():
                text = line.decode().rstrip("\n")
                if text:
                    field, _, value = text.partition(": ")
                    found[field] = value
                    continue
                if "event" in found:
                    self._lines.put(
                        Streamed(
                            c=name, ladder=ladder, event=found["event"], data=found["data"],
                            id=found.get("id", ""), at=time.time(),
                        )
                    )  # fmt: skip
                elif once and "id" in found:
                    return found["id"], True
                last = found.get("id", last)
                found = {}
        except (OSError, http.client.HTTPException):
            pass
        return last, False


SILENT = logging.getLogger("tests.judge")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def main() -> int:
    """Record."""
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
        "--redisplayed", type=json.loads, default={},
        help="a JSON object: from which offsets ladders have other parameters of display",
    )  # fmt: skip
    given = parser.parse_args()
    with Writer(given.file) as writer:
        if not given.kafka:
            writer.write(Run(reader=given.name))
        recorder = Recorder(given, writer)
        recorder.run()
        writer.write(End(ends=recorder.ends, records=writer.records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
