"""Ids that try to collide, to reach other keys, or to break a line, on real Kafka and Redis."""

import itertools
import json
import re
from collections.abc import Callable

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import LADDERS_KEY, LAYOUT_KEY
from stream_rater.contract.events import rating_changed_from_json
from tests import real
from tests.integration.bad_rounds import a_round
from tests.integration.processes import WorkerProcess, stream_rater, wait_until
from tests.integration.topics import Bytes, Finished, produce, read_topic

IDS = [
    "a", "a:b", "a%3Ab", "a%253Ab", "{0}:position", "0}:position", "*", "[a]", "a\nb", "a\r\n",
    "a\0", "\x1b[2J", "\u2028", "é", "e\u0301", "\U0001f9d9", "a b", '"a"', "\\", "' or 1", "$.x",
    "stream-rater:layout", "0:belief:a:0",
]  # fmt: skip
KEY = re.compile(r"\{\d+\}:(position|belief:[^:{}]+:\d+)")


def test_ids_stay_apart(
    settings: real.SettingsFactory, worker_process: Callable[..., WorkerProcess]
) -> None:
    """Each id is used as ladder, round and player. All are rated as themselves, once; Redis has
    only our keys; the log has one line for each event."""
    at = settings()
    worker = worker_process(at)
    standings = [{"player": player, "rank": 1 + i} for i, player in enumerate(IDS)]
    sent = [
        Bytes(a_round(*standings, round_id=each, ladder=ladder), ladder.encode())
        for ladder, each in itertools.product(IDS, IDS[:3])
    ]
    twice = [{"player": player, "rank": 1} for player in (IDS[8], IDS[8])]
    produce(at, [*sent, *(Bytes(a_round(*twice, ladder=ladder)) for ladder in IDS)])
    wait_until(Finished(at), "everything is finished", every_s=0.2)
    changes = read_topic(at, Topics.of(at).changed)
    events = [rating_changed_from_json(message.value() or b"") for message in changes]
    found = {(each.ladder, each.round_id, each.player): each for each in events}
    assert found.keys() == set(itertools.product(IDS, IDS[:3], IDS))
    assert len(changes) == len(found) == len({event.event_id for event in found.values()})
    assert len({message.key() for message in changes}) == len(IDS) ** 2
    with connect(at) as client:
        found_keys = {key.decode() for key in client.scan_iter(count=1000)}
    keys = found_keys - {LADDERS_KEY, LAYOUT_KEY, real.CLAIM}
    assert [key for key in keys if not KEY.fullmatch(key)] == []
    assert {key.split(":")[2] for key in keys if "belief" in key} == {escaped(each) for each in IDS}
    verified = stream_rater("verify", settings=at)
    assert verified.returncode == 0, verified.stderr
    assert f"{len(IDS) ** 2} beliefs compared: all equal" in verified.stdout
    assert all("event" in json.loads(line) for line in worker.log().splitlines())
    watched = stream_rater("watch", "--from-start", "--count", f"{len(found)}", settings=at)
    lines = watched.stdout.split("\n")
    assert len(lines) == len(found) + 1 and all(line.isprintable() for line in lines)


def escaped(ladder: str) -> str:
    """The ladder as it is in a key."""
    return "".join(f"%{ord(c):02X}" if c in "%:{}" else c for c in ladder)
