"""The fault of corrections: workers are killed while a ladder's rounds are rated again."""

import time
from pathlib import Path

import msgspec

from stream_rater.adapters.kafka.topics import Admin
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.groups import ESTIMATORS
from tests.chaos.corrected import CROWD, LADDERS, CorrectedSeason, matches
from tests.chaos.crew import Violation
from tests.chaos.scene import Outcome, Scene, a_scene
from tests.integration.processes import WorkerProcess, wait_until

KILLS, GUST = 30, 10
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
    """How many workers were killed while they worked on one."""


def corrections(name: str, folder: Path, quick: bool) -> Corrected:
    """Kill three workers while rounds and corrections of three ladders stream.

    All lie in one partition. Mostly its estimator is killed, soon after it began with a correction;
    else any worker, at any moment.
    """
    folder.mkdir(parents=True)
    ladders = folder / "ladders.toml"
    ladders.write_text(LADDERS_FILE)
    with a_scene(
        name, folder, matches(), workers=2, quick=quick, season=CorrectedSeason,
        partitions=1, ladders=str(ladders), checkpoint_every=500,
    ) as scene:  # fmt: skip
        season = scene.season
        assert isinstance(season, CorrectedSeason)
        scene.crew.add("").wait_ready()
        season.play(FIRST)
        scene.wait_until_rated()
        cut_short = 0
        while scene.injected < (KILLS if not quick else 4):
            work = Work(scene, season.correct(scene.random.randint(1, 2)))
            season.play(scene.random.randint(0, AHEAD))
            victim = scene.random.choice(scene.crew.workers)
            if scene.random.random() < 0.75 and (busy := work.begun()):
                victim = busy
            time.sleep(scene.random.uniform(0.0, 0.8))  # the fault comes early or late in the work
            scene.inject()
            victim.kill()
            cut_short += victim in work.workers and not work.finished()
            scene.crew.replace(victim)
            scene.crew.tend()
            if scene.injected % GUST == 0:
                scene.recover()
            elif scene.random.random() < 0.5:
                scene.wait_until_rated()  # the next owner of the partition needs the notes of this
        scene.recover()
        if not cut_short:
            raise Violation(f"{name}: no kill came while a correction was applied")
        return Corrected(
            **msgspec.structs.asdict(scene.outcome()), corrections=season.corrections,
            cut_short=cut_short,
        )  # fmt: skip


class Work:
    """The work on corrections that were just sent, the last of them at this offset."""

    def __init__(self, scene: Scene, last: int) -> None:
        self._scene = scene
        self._last = last
        self._admin = Admin(scene.settings)
        self._before = {each.pid: _reads(each) for each in scene.crew.workers}
        self.workers: list[WorkerProcess] = []
        """Who was seen at it."""

    def begun(self) -> WorkerProcess | None:
        """Wait until a worker reads rounds again, and return it; None if all is done before."""

        def at_it() -> bool:
            self._scene.crew.tend()
            crew = self._scene.crew.workers
            self.workers = [e for e in crew if _reads(e) > self._before.get(e.pid, 0.0)]
            return bool(self.workers) or self.finished()

        wait_until(at_it, f"{self._scene.name}: they apply it", every_s=0.02)
        return self.workers[0] if self.workers else None

    def finished(self) -> bool:
        """Whether the corrections are applied, or a commit is pending."""
        topic = self._admin.topics.rounds
        try:
            commit = self._admin._stable(ESTIMATORS, topic, 1)[0]
        except LogTrouble:
            return True
        return commit is not None and commit.offset > self._last


def _reads(worker: WorkerProcess) -> float:
    """How often a worker has read rounds again."""
    return worker.metric("stream_rater_stage_seconds_count", stage="ReadAgain")
