"""`serve` that is killed while clients report rounds to it, and a Kafka that is away for longer
than a record may wait for it.

A client repeats what was not acknowledged, under the same round id, until it is: so a round may be
in the log twice, and must count once. At the end each acknowledged round has one event for each of
its players, no round has more, and every belief equals a sequential replay of the log.
"""

import random
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import msgspec

from local.servers import Server, start_kafka
from stream_rater.adapters.kafka.round_log import ACKNOWLEDGED_S
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import rating_changed_from_json
from tests.brokers import QUICK_FAILOVER
from tests.chaos.chance import seeded
from tests.chaos.crew import Violation
from tests.chaos.judging import check, judge_twice, recording, words_of
from tests.chaos.scene import MOST_MISTAKES, Outcome, advised_redis
from tests.chaos.standalone import Crowd, Host, clients, free_port
from tests.integration.processes import stream_rater, wait_until, workers
from tests.integration.topics import Finished, read_topic

KILLS, FEW = 20, 3
"""The kills, and those of a quick run."""
AHEAD = 60
"""The most rounds that it acknowledges before it may be killed."""
SOON_S = 0.15
"""The longest time from then until it is killed: the fault itself."""
AWAY_S = ACKNOWLEDGED_S + 5.0
"""How long Kafka is away: longer than the client of Kafka keeps a record."""
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
        outcome = killed(name, door, kafka, FEW if quick else KILLS)
        judged = check(name, judge_twice(live, settings))
        return msgspec.structs.replace(outcome, judged=judged)


def killed(name: str, door: Host, kafka: Server, kills: int) -> Outcome:
    """Kill `serve` this often, and Kafka in the middle. Raises Violation if `verify` finds a
    difference."""
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
    verified = stream_rater("verify", "--wait", "60", settings=door.settings)
    if verified.returncode:
        raise Violation(f"{name}: verify says {verified.stdout}{verified.stderr}")
    return _outcome(name, door.settings, crowd, kills + 1, max(recoveries_s))


def _without_kafka(kafka: Server, crowd: Crowd, door: Host) -> float:
    """Kill Kafka, and start it again after AWAY_S. Returns the seconds from then until a round was
    acknowledged."""
    kafka.kill()
    time.sleep(AWAY_S)  # the fault itself
    kafka.restart()
    began_s = time.monotonic()
    crowd.wait_for(1, door)
    return time.monotonic() - began_s


def _outcome(name: str, at: Settings, crowd: Crowd, faults: int, recovery_s: float) -> Outcome:
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
