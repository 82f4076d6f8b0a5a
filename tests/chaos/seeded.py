"""The fault of seeds: workers are killed while seeds, resets and corrections of them come among
rounds."""

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import to_json
from stream_rater.contract.seeds import RESET, SEEDED
from tests.chaos.corrected import LADDERS, PLAYERS, CorrectedSeason
from tests.chaos.correcting import a_corrected_scene
from tests.chaos.scene import Outcome
from tests.integration.topics import Bytes, produce

KILLS, GUST = 30, 10
FIRST, AHEAD = 400, 60
"""The rounds before the first seed, and the most rounds that are sent with each fault."""
LARGE = 400
"""The number of new players in a seed."""


class SeededSeason(CorrectedSeason):
    """A season with seeds, resets, and corrections of rounds and seeds."""

    def __init__(self, settings: Settings, rounds: Iterator[dict[str, Any]]) -> None:
        super().__init__(settings, rounds)
        self._given: list[dict[str, Any]] = []
        """The seeds and resets that were sent."""

    def seed(self, count: int) -> None:
        """Send this many seeds and resets, some of them one behind the other."""
        some = [self._seed() for _ in range(count)]
        produce(self._settings, some)

    def _seed(self) -> Bytes:
        random, ladder = self._random, self._random.choice(LADDERS)
        about: dict[str, Any] = {
            "ladder": ladder, "round_id": f"given-{len(self._given)}", "at": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        if random.random() < 0.3:
            about |= {"player": f"p{random.randrange(PLAYERS)}", "sigma": random.uniform(60, 300)}
            about |= {"mu": random.uniform(1000, 2000)} if random.random() < 0.5 else {}
            kind = RESET
        else:
            about["players"] = list(_rows(random, len(self._given)))
            kind = SEEDED
        self._given.append(about)
        return Bytes(to_json(about), ladder.encode(), [(EVENT_TYPE, kind.encode())])

    def _correction(self) -> Bytes:
        """A correction of any kind. Some void a seed or a reset."""
        if self._random.random() > 0.3:
            return super()._correction()
        given = self._random.choice(self._given)
        about = {"ladder": given["ladder"], "round_id": given["round_id"]}
        return Bytes(to_json(about), about["ladder"].encode(), [(EVENT_TYPE, b"round-voided")])


def _rows(random: Random, number: int) -> Iterator[dict[str, Any]]:
    """Players who may have played, and many who have not."""
    known = [f"p{each}" for each in random.sample(range(PLAYERS), 5)]
    first = 100 * random.randrange(number + 1)
    for player in [*known, *(f"new-{first + each}" for each in range(LARGE))]:
        yield {
            "player": player, "mu": random.uniform(1000, 2000), "sigma": random.uniform(60, 300),
            "rounds": random.randint(1, 99),
        }  # fmt: skip


def seeds(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill three workers while rounds, seeds, resets and corrections of three ladders stream."""
    with a_corrected_scene(name, folder, quick, first=FIRST, season=SeededSeason) as both:
        scene, season = both
        season.seed(2)
        while scene.injected < (KILLS if not quick else 4):
            season.seed(scene.random.randint(1, 4))
            season.play(scene.random.randint(1, AHEAD))
            if scene.random.random() < 0.5:
                season.correct(1)
            season.seed(scene.random.randint(0, 2))
            time.sleep(scene.random.uniform(0.0, 0.8))  # the fault comes early or late in the work
            scene.inject()
            victim = scene.random.choice(scene.crew.workers)
            scene.crew.kill(victim)
            scene.crew.tend()
            if scene.injected % GUST == 0:
                scene.recover()
        scene.recover()
        return scene.outcome()
