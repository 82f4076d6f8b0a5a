"""The rounds that are played while things break, and what must come of them."""

import gzip
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from local.tools import ROOT
from stream_rater.adapters.topics import Topics
from stream_rater.config import Settings
from stream_rater.events import RatingChanged, rating_changed_from_json
from tests.integration.topics import Bytes, Finished, produce, read_topic

PLAYERS, LOBBY = 2_000, 8
Who = tuple[str, str]
"""Ladder and player."""
LADDERS = ("duels", "lobbies", "ranked")


class Season:
    """Sends rounds, and knows how often each player must have been rated."""

    def __init__(self, settings: Settings, rounds: Iterator[dict[str, Any]]) -> None:
        self._settings = settings
        self._rounds = rounds
        self._due: Counter[Who] = Counter()
        self.finished = Finished(settings)

    @property
    def updates(self) -> int:
        """Ratings that are due."""
        return self._due.total()

    def play(self, count: int) -> None:
        """Send so many rounds more, all acknowledged when this returns."""
        events = list(itertools.islice(self._rounds, count))
        produce(
            self._settings, [Bytes(msgspec.json.encode(e), e["ladder"].encode()) for e in events]
        )
        for event in events:
            for entry in event["standings"]:
                self._due[event["ladder"], entry["player"]] += 1

    def lost_and_doubled(self) -> tuple[int, int]:
        """Read from rating-changed."""
        messages = read_topic(self._settings, Topics.of(self._settings).changed)
        return tally(self._due, (rating_changed_from_json(m.value() or b"") for m in messages))


def tally(due: Mapping[Who, int], changes: Iterable[RatingChanged]) -> tuple[int, int]:
    """How many are lost and doubled: a player's changes count rounds 1, 2, 3 ..., each once."""
    last: Counter[Who] = Counter()
    lost = doubled = 0
    for change in changes:
        who = change.ladder, change.player
        lost += max(0, change.rounds - last[who] - 1)
        doubled += change.rounds <= last[who]
        last[who] = max(last[who], change.rounds)
    lost += sum(max(0, count - last[who]) for who, count in due.items())
    doubled += sum(max(0, told - due.get(who, 0)) for who, told in last.items())
    return lost, doubled


def lobbies(seed: int = 1) -> Iterator[dict[str, Any]]:
    """Rounds of eight in three ladders, for ever."""
    random = np.random.default_rng(seed)
    for number in itertools.count():
        players = random.choice(PLAYERS, LOBBY, replace=False).tolist()
        yield {
            "round_id": f"lobby-{number}",
            "ladder": LADDERS[number % len(LADDERS)],
            "completed_at": "2026-01-01T00:00:00Z",
            "standings": [{"player": f"p{p}", "rank": 1 + i} for i, p in enumerate(players)],
        }


def codeforces() -> Iterator[dict[str, Any]]:
    """The Codeforces file again and again; lobbies where it is absent."""
    shared = Path(os.environ.get("STREAM_RATER_SHARED") or ROOT.parent / "shared")
    path = shared / "data" / "codeforces.jsonl.gz"
    if not path.is_file():
        yield from lobbies()
    for turn in itertools.count():
        with gzip.open(path) as file:
            for line in file:
                event: dict[str, Any] = msgspec.json.decode(line)
                yield event | {"round_id": f"{event['round_id']}-{turn}"}
