"""The fault of corrections: workers are killed while a ladder's rounds are rated again."""

import time
from pathlib import Path

import msgspec

from stream_rater.adapters.topics import Admin
from stream_rater.contract.groups import ESTIMATORS
from stream_rater.pipeline.ports import LogTrouble
from tests.chaos.corrected import CROWD, LADDERS, CorrectedSeason, matches
from tests.chaos.crew import Violation, shares
from tests.chaos.scene import Outcome, Scene, a_scene

KILLS, GUST = 60, 12
FIRST = 12_000
"""The rounds that are rated before the first correction: enough for the work on one to take some
tenths of a second."""
AHEAD = 30
"""The most rounds that are sent behind a correction."""
LADDERS_FILE = "".join(
    f'[ladders.{ladder}.rating]\nsystem = "elo-mmr"\nweight_limit = 0.2\nsigma_limit = 80\n'
    "drift_per_day = 2.0\n"
    for ladder in (*LADDERS, CROWD)
)


class Corrected(Outcome, frozen=True, kw_only=True):
    """An outcome with what is known of corrections."""

    corrections: int
    """How many were sent."""
    cut_short: int
    """How many kills came while a correction was not finished."""


def corrections(name: str, folder: Path, quick: bool) -> Corrected:
    """Kill three workers at random moments while rounds and corrections of three ladders stream.

    All lie in one partition. Its estimator is killed more often than the others, soon after a
    correction was sent.
    """
    folder.mkdir(parents=True)
    ladders = folder / "ladders.toml"
    ladders.write_text(LADDERS_FILE)
    with a_scene(
        name, folder, matches(), workers=2, quick=quick, season=CorrectedSeason,
        partitions=1, ladders=str(ladders),
    ) as scene:  # fmt: skip
        season = scene.season
        assert isinstance(season, CorrectedSeason)
        scene.crew.add("").wait_ready()
        season.play(FIRST)
        scene.await_rated()
        cut_short = 0
        while scene.injected < (KILLS if not quick else 4):
            last = season.correct(scene.random.randint(1, 2))
            season.play(scene.random.randint(0, AHEAD))
            time.sleep(scene.random.uniform(0.0, 1.2))  # the work on it begins, or is done
            cut_short += _kill(scene, last)
            scene.crew.tend()
            if scene.random.random() < 0.4:
                time.sleep(scene.random.expovariate(0.5))
            if scene.injected % GUST == 0:
                scene.recover()
        scene.recover()
        if not cut_short:
            raise Violation(f"{name}: no kill came while a correction was worked in")
        return Corrected(
            **msgspec.structs.asdict(scene.outcome()), corrections=season.corrections,
            cut_short=cut_short,
        )  # fmt: skip


def _kill(scene: Scene, last: int) -> bool:
    """Kill a worker. Returns whether it was an estimator, and the correction at offset `last` was
    not finished."""
    scene.inject()
    estimators = [each for each in scene.crew.workers if shares(each).get("estimator")]
    some = estimators if estimators and scene.random.random() < 0.6 else scene.crew.workers
    victim = scene.random.choice(some)
    victim.kill()
    finished = _finished(scene, last)
    scene.crew.replace(victim)
    return victim in estimators and not finished


def _finished(scene: Scene, offset: int) -> bool:
    admin = Admin(scene.settings)
    try:
        committed = admin.committed(ESTIMATORS, admin.topics.rounds, 1)[0]
    except LogTrouble:  # a commit is pending
        return True
    return (committed or 0) > offset
