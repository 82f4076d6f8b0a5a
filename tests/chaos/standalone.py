"""Kills at random moments while clients post rounds: of a standalone process, also at its start,
and of `serve`, whose Kafka is away for longer than a record may wait. A client repeats a round that
was not acknowledged under its id: it may be in the log twice, and must count once. At the end, each
round is accepted once and published once, and beliefs equal a replay."""

import http.client
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from local.processes import free_port
from local.servers import Server, start_kafka
from stream_rater.adapters.kafka.round_log import ACKNOWLEDGED_S
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.sqlite.database import connect_reader
from stream_rater.adapters.sqlite.events import read_events
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Unusable
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.contract.record import RecordPlace
from stream_rater.places import ladders_of
from tests.brokers import QUICK_FAILOVER
from tests.chaos.crew import Violation
from tests.chaos.judging import Posts, check, judge_twice, recording, words_of
from tests.chaos.scene import MOST_MISTAKES, Outcome, advised_redis, verify
from tests.chaos.season import seeded
from tests.data_files import audit, committed_of, ends_of, unfinished
from tests.integration.processes import THIS_RELEASE, WorkerProcess, wait_until, workers
from tests.integration.topics import Finished, read_topic
from tests.judge.judge import judged
from tests.waits import STILL_S

KILLS, FEW = 200, 4  # the kills of a standalone process, and those of a quick run
KILLS_OF_SERVE, FEW_OF_SERVE = 20, 3
EARLY = 0.2  # the share of kills that come while the process starts
EARLY_S, SOON_S = 2.5, 0.15  # The longest time to a kill, from start or from work.
AHEAD = 60  # the most rounds that it acknowledges before it may be killed
GUST = 10  # the kills after which the recovery is measured
CLIENTS, MOST_TOGETHER = 4, 12
PACE_S = 0.01  # a client's pause after each request: the audit then takes a minute or so
PLAYERS, LADDERS = 400, ("duels", "lobbies", "ranked")


def standalone(name: str, folder: Path, quick: bool) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    return killed(name, folder, FEW if quick else KILLS)


def killed(name: str, folder: Path, kills: int) -> Outcome:
    """Kill it this often. Raises Violation if it ends by itself."""
    file, published = folder / "ratings.db", Published(folder / "events.jsonl")
    address = f"127.0.0.1:{free_port()}"
    host = Host(Settings(serve_rate=0.0), folder, "standalone", str(file), "--listen", address)
    stream, sent = folder / "stream.jsonl.gz", folder / "posts.jsonl.gz"
    words = [word for ladder in LADDERS for word in ("--follow", ladder)]
    try:
        with recording(stream, "--http", address, *words) as recorder, Posts(sent) as posts:
            with clients(address, posts=posts) as crowd:
                recoveries_s = _kills(host, file, crowd, published, kills)
            wait_until_rated(host, file)
            posts.ask(address, crowd.acknowledged)
            recorder.finish()
        host.stop()
    finally:
        host.close()
    published.read(file)
    window, ladders = Settings().duplicate_window, ladders_of(Settings(data=str(file)))
    found = audit(file, ladders, window, crowd.acknowledged, published.events())
    for mistake in found.mistakes[:MOST_MISTAKES]:
        sys.stderr.write(f"{name}: {mistake}\n")
    return Outcome(
        fault=name, injected=kills, updates=found.updates, lost=found.lost,
        doubled=found.doubled, wrong=len(found.mistakes), recoveries=len(recoveries_s),
        recovery_s=round(max(recoveries_s), 2), judged=check(name, judged(sent, stream)),
    )  # fmt: skip


def _kills(
    host: "Host", file: Path, crowd: "Crowd", published: "Published", kills: int
) -> list[float]:
    """Kill it this often, and start it once more. Returns the seconds of each recovery."""
    chance, recoveries_s = random.Random(seeded(7)), []
    for number in range(1, kills + 1):
        host.start()
        if number % GUST == 0 or number == kills:
            recoveries_s.append(recovered(host, file, crowd))
        if chance.random() < EARLY:
            time.sleep(chance.uniform(0.0, EARLY_S))
        else:
            crowd.wait_for(chance.randint(1, AHEAD), host)
            time.sleep(chance.uniform(0.0, SOON_S))
        host.kill()
        published.read(file)
    host.start()
    crowd.wait_for(1, host)
    return recoveries_s


# --- the process ---------------------------------------------------------------------------------


class Host:
    """Starts and kills a command of the service, which always has the same address."""

    def __init__(
        self, settings: Settings, folder: Path, *words: str, module: str = THIS_RELEASE
    ) -> None:
        self.settings, self._folder, self._words, self._count = settings, folder, words, 0
        self.module = module
        self._process: WorkerProcess | None = None

    def start(self) -> None:
        log = self._folder / f"{self._words[0]}-{self._count}.log"
        self._count += 1
        command = [sys.executable, "-m", self.module, *self._words]
        self._process = WorkerProcess(self.settings, log, command=command)

    def check(self) -> WorkerProcess:
        """The process. Raises Violation if it has ended by itself."""
        assert self._process is not None
        if not self._process.running:
            raise Violation(f"it ended by itself: {self._process.log()[-2000:]}")
        return self._process

    def kill(self) -> None:
        self.check().kill()
        self.close()

    def stop(self) -> None:
        """Send SIGTERM. Raises Violation if it does not exit with 0."""
        process = self.check()
        process.terminate()
        if code := process.wait():
            raise Violation(f"SIGTERM ended it with {code}: {process.log()[-2000:]}")

    def close(self) -> None:
        if self._process is not None:
            self._process.close()


def recovered(host: Host, file: Path, crowd: "Crowd") -> float:
    """The seconds from its start until it has rated what was sent before."""
    began_s = time.monotonic()
    crowd.wait_for(1, host)  # then the file is there
    with closing(connect_reader(file)) as reader:
        ends = ends_of(reader)

        def rated() -> bool:
            host.check()
            committed = committed_of(reader)
            return all(committed.get(p, 0) >= end for p, end in ends.items())

        wait_until(rated, "what was sent before is rated", every_s=0.02)
    return time.monotonic() - began_s


def wait_until_rated(host: Host, file: Path) -> None:
    with closing(connect_reader(file)) as reader:

        def rated() -> bool:
            host.check()
            return unfinished(reader) == 0

        wait_until(rated, "all is rated", moves=lambda: unfinished(reader))


class Published:
    """The events that were in the data file after each kill: it keeps only the newest ones."""

    def __init__(self, kept: Path) -> None:
        self._kept, self._next = kept, 0

    def read(self, file: Path) -> None:
        """Add a data file's new events. Raises Violation if events before them are missing."""
        try:
            reader = connect_reader(file)
        except Unusable:
            if self._next:
                raise
            return  # it was killed before the file had its tables
        with closing(reader), self._kept.open("ab") as kept:
            for offset, event in read_events(reader, 0, self._next):
                if offset != self._next:
                    raise Violation(f"event {self._next} is not there: {offset} follows")
                kept.write(event.value + b"\n")
                self._next += 1

    def events(self) -> Iterator[RatingChanged]:
        with self._kept.open("rb") as kept:
            yield from map(rating_changed_from_json, kept)


# --- the clients ---------------------------------------------------------------------------------


@dataclass
class Crowd:
    acknowledged: dict[tuple[str, str], RecordPlace] = field(default_factory=dict)
    repeated: int = 0  # the requests that were not acknowledged, and were sent again
    refused: list[str] = field(default_factory=list)  # answers that no client should get
    stopping: bool = False
    token: str = ""
    posts: Posts | None = None  # what the judge gets of what is sent

    def wait_for(self, count: int, host: Host) -> None:
        """Wait until this many more rounds were acknowledged."""
        before = len(self.acknowledged)

        def taken() -> bool:
            host.check()
            if self.refused:
                raise Violation(self.refused[0])
            return len(self.acknowledged) >= before + count

        wait_until(
            taken, f"{count} rounds are taken", moves=lambda: len(self.acknowledged), every_s=0.005
        )


@contextmanager
def clients(address: str, token: str = "", posts: Posts | None = None) -> Iterator[Crowd]:
    """Clients that post rounds in the block. After it all are acknowledged, and in `posts`."""
    crowd = Crowd(token=token, posts=posts)
    threads = [
        threading.Thread(target=_report, args=(crowd, address, number), daemon=True)
        for number in range(CLIENTS)
    ]
    for each in threads:
        each.start()
    try:
        yield crowd
    except BaseException:
        crowd.stopping = True
        raise
    crowd.stopping = True
    for each in threads:
        each.join(STILL_S)
        if each.is_alive():
            raise Violation(f"a client had no answer for {STILL_S:.0f} s")
    if crowd.refused:
        raise Violation(crowd.refused[0])


def _report(crowd: Crowd, address: str, number: int) -> None:
    rounds = _rounds(number)
    chance = random.Random(seeded(number))
    while not crowd.stopping:
        count = 1 if chance.random() < 0.5 else chance.randint(2, MOST_TOGETHER)
        _send(crowd, address, [next(rounds) for _ in range(count)])
        time.sleep(PACE_S)


def _send(crowd: Crowd, address: str, rounds: list[dict[str, Any]]) -> None:
    deadline_s = time.monotonic() + STILL_S
    while rounds and time.monotonic() < deadline_s and not crowd.refused:
        try:
            answers = _post(address, rounds, crowd.token)
        except (OSError, http.client.HTTPException):
            answers = []
            time.sleep(0.02)  # a client's pause before it connects again
        left = list(rounds)
        if crowd.posts is not None:
            crowd.posts.answered(rounds, answers)
        for each, answer in zip(rounds, answers, strict=bool(answers)):
            if answer["status"] == 202:
                name = each["ladder"], each["round_id"]
                crowd.acknowledged[name] = RecordPlace(answer["partition"], answer["offset"])
                left.remove(each)
            elif answer["status"] not in (429, 503):
                crowd.refused.append(f"{each} was answered by {answer}")
        crowd.repeated += bool(left)
        rounds = left


def _post(address: str, rounds: list[dict[str, Any]], token: str) -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection(address, timeout=STILL_S)
    one = len(rounds) == 1
    path = f"/v1/ladders/{quote(rounds[0]['ladder'])}/rounds" if one else "/v1/rounds"
    body = msgspec.json.encode(rounds[0] if one else rounds)
    headers = {"Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    with closing(connection):
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        found = msgspec.json.decode(answer.read())
    if one or "results" not in found:
        return [{**found, "status": answer.status}] * len(rounds)
    return list(found["results"])


def _rounds(client: int) -> Iterator[dict[str, Any]]:
    chance, number = random.Random(seeded(1000 + client)), 0
    while True:
        number += 1
        players = chance.sample(range(PLAYERS), chance.choice([2, 2, 3, 4, 8]))
        yield {
            "round_id": f"client-{client}-{number}", "ladder": chance.choice(LADDERS),
            "completed_at": "2026-01-01T00:00:00Z",
            "standings": [{"player": f"p{p}", "rank": 1 + i} for i, p in enumerate(players)],
        }  # fmt: skip


# --- serve ---------------------------------------------------------------------------------------

AWAY_S = ACKNOWLEDGED_S + 5.0  # Kafka is away for longer than its client keeps a record
TOKEN = "reports"


def ingest(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill `serve` again and again under load, and Kafka once."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        redis = stack.enter_context(advised_redis(folder / "redis"))
        kafka = stack.enter_context(start_kafka(folder / "kafka", properties=QUICK_FAILOVER))
        settings = Settings(
            kafka=kafka.address, redis=redis.address, http="127.0.0.1:0", shards=4,
            serve=f"127.0.0.1:{free_port()}", serve_write_token=TOKEN, serve_rate=0.0,
        )  # fmt: skip
        live = stack.enter_context(
            recording(folder / "live.jsonl.gz", "--name", "live", *words_of(settings))
        )
        stack.enter_context(workers(folder))(settings)
        door = Host(settings, folder, "serve")
        stack.callback(door.close)
        found = _kill_serve(name, door, kafka, FEW_OF_SERVE if quick else KILLS_OF_SERVE)
        judged = check(name, judge_twice(live, settings))
        return msgspec.structs.replace(found, judged=judged)


def _kill_serve(name: str, door: Host, kafka: Server, kills: int) -> Outcome:
    """Kill `serve` this often, and Kafka in the middle. Raises Violation if `verify` differs."""
    chance, recoveries_s = random.Random(seeded(7)), list[float]()
    with clients(door.settings.serve, TOKEN) as crowd:
        for number in range(kills):
            door.start()
            crowd.wait_for(chance.randint(1, AHEAD), door)
            if number == kills // 2:
                recoveries_s.append(_without_kafka(kafka, crowd, door))
            time.sleep(chance.uniform(0.0, SOON_S))
            door.kill()
        door.start()
        crowd.wait_for(1, door)
    wait_until(finished := Finished(door.settings), "all is rated", moves=finished.moves)
    verify(name, door.settings)
    return outcome(name, door.settings, crowd, kills + 1, max(recoveries_s))


def _without_kafka(kafka: Server, crowd: Crowd, door: Host) -> float:
    """Kill Kafka, and start it after AWAY_S. Returns seconds until a round is acknowledged."""
    kafka.kill()
    time.sleep(AWAY_S)  # the fault itself
    kafka.restart()
    began_s = time.monotonic()
    crowd.wait_for(1, door)
    return time.monotonic() - began_s


def outcome(name: str, at: Settings, crowd: Crowd, faults: int, recovery_s: float) -> Outcome:
    """Compare the events with the rounds that were acknowledged."""
    events = [
        rating_changed_from_json(message.value() or b"")
        for message in read_topic(at, Topics.of(at).changed)
    ]
    counts = Counter((each.ladder, each.round_id, each.player) for each in events)
    rated = {(ladder, round_id) for ladder, round_id, _ in counts}
    lost = sorted(crowd.acknowledged.keys() - rated)
    doubled = sorted(each for each, count in counts.items() if count > 1)
    for mistake in [*lost, *doubled][:MOST_MISTAKES]:
        sys.stderr.write(f"{name}: lost or doubled: {mistake}\n")
    return Outcome(
        fault=name, injected=faults, updates=len(events), lost=len(lost), doubled=len(doubled),
        wrong=0, recoveries=1, recovery_s=round(recovery_s, 2),
    )  # fmt: skip
