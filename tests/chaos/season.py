"""The rounds that are sent while things break, and the results that are expected."""

import gzip
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from local.tools import ROOT
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import rating_changed_from_json
from tests.chaos.chance import seeded
from tests.chaos.tally import Tally, Who, counted_otherwise, differing, tally
from tests.integration.topics import Bytes, Finished, produce, read_topic

PLAYERS, LOBBY = 2_000, 8
LADDERS = ("duels", "lobbies", "ranked")


class Season:
    """Sends rounds, and knows which of them each player must have been rated by."""

    def __init__(self, settings: Settings, rounds: Iterator[dict[str, Any]]) -> None:
        self._settings = settings
        self._rounds = rounds
        self._due: dict[Who, dict[str, int]] = {}
        self.updates = 0  # the number of expected ratings
        self.finished = Finished(settings)

    def play(self, count: int) -> list[dict[str, Any]]:
        """Send this many more rounds, all of which are acknowledged when this returns. Returns
        them."""
        events = list(itertools.islice(self._rounds, count))
        self.replay(events)
        for event in events:
            for entry in event["standings"]:
                mine = self._due.setdefault((event["ladder"], entry["player"]), {})
                mine[event["round_id"]] = len(mine) + 1
                self.updates += 1
        return events

    def replay(self, rounds: Sequence[dict[str, Any]]) -> None:
        """Send these rounds, which were sent before and are in the log no longer."""
        produce(
            self._settings, [Bytes(msgspec.json.encode(e), e["ladder"].encode()) for e in rounds]
        )

    def rated_otherwise(self) -> list[str]:
        """Lines for players whose belief in the store is not of as many rounds as they played."""
        return list(counted_otherwise(self._due, self._settings))

    def tally(self) -> Tally:
        messages = read_topic(self._settings, Topics.of(self._settings).changed)
        found = tally(self._due, (rating_changed_from_json(m.value() or b"") for m in messages))
        found.mistakes += differing(found.last, self._settings)
        return found


def lobbies(seed: int = 1) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(seeded(seed))
    for number in itertools.count():
        players = random.choice(PLAYERS, LOBBY, replace=False).tolist()
        yield {
            "round_id": f"lobby-{number}",
            "ladder": LADDERS[number % len(LADDERS)],
            "completed_at": "2026-01-01T00:00:00Z",
            "standings": [{"player": f"p{p}", "rank": 1 + i} for i, p in enumerate(players)],
        }


CODEFORCES = Path(os.environ.get("STREAM_RATER_SHARED") or ROOT.parent / "shared").joinpath(
    "data", "codeforces.jsonl.gz"
)


def codeforces() -> Iterator[dict[str, Any]]:
    """The rounds of the Codeforces file, repeated."""
    for turn in itertools.count():
        with gzip.open(CODEFORCES) as file:
            for line in file:
                event: dict[str, Any] = msgspec.json.decode(line)
                yield event | {"round_id": f"{event['round_id']}-{turn}"}
