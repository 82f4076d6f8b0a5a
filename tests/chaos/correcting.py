"""Faults while corrections and seeds are applied: workers die or are upgraded, servers fail."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from local.processes import LOOPBACK, free_port
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import ESTIMATORS, to_json
from stream_rater.contract.seeds import RESET, SEEDED
from tests.chaos import last_release
from tests.chaos.corrected import CROWD, LADDERS, PLAYERS, CorrectedSeason, matches
from tests.chaos.crew import Violation
from tests.chaos.scene import Freed, Outcome, Scene, a_scene, freed, verify
from tests.chaos.serving import started, wait_until_all_answer
from tests.integration.processes import THIS_RELEASE, WorkerProcess, wait_until
from tests.integration.topics import Bytes, produce
from tests.redis_cluster import a_redis_cluster

NEXT_KERNEL, LAST = "tests.chaos.next_kernel", last_release.__name__
KILLS, GUST = 30, 10
FIRST = 12_000  # Rounds before the first correction, whose replay takes some tenths of a second.
AHEAD, AT_ONCE = 30, 2  # The most rounds behind a correction, and corrections sent together.
LADDERS_FILE = "".join(
    f'[ladders.{ladder}.rating]\nsystem = "elo-mmr"\nweight_limit = 0.2\nsigma_limit = 80\n'
    "drift_per_day = 2.0\n"
    for ladder in (*LADDERS, CROWD)
)


class Corrected(Outcome, frozen=True, kw_only=True):
    corrections: int  # how many were sent
    cut_short: int  # how many workers were killed while they worked on one


@contextmanager
def a_corrected_scene(
    name: str, folder: Path, quick: bool, *, first: int = FIRST, workers: int = 3,
    season: type[CorrectedSeason] = CorrectedSeason, **more: Any,
) -> Iterator[tuple[Scene, Any]]:  # fmt: skip
    """A scene with all ladders in one partition, and its season, whose first rounds are rated."""
    folder.mkdir(parents=True)
    ladders = folder / "ladders.toml"
    ladders.write_text(LADDERS_FILE)
    with a_scene(
        name, folder, quick, matches(), workers=workers, season=season, partitions=1,
        ladders=str(ladders), checkpoint_every=500, **more,
    ) as scene:  # fmt: skip
        scene.season.play(first)
        scene.wait_until_rated()
        yield scene, scene.season


def corrections(name: str, folder: Path, quick: bool) -> Corrected:
    """Kill workers while rounds and corrections of three ladders in one partition stream. Mostly
    its estimator is killed, soon after it began with a correction, else any worker at any time."""
    with a_corrected_scene(name, folder, quick, workers=2) as (scene, season):
        scene.crew.add("").wait_ready()
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
                scene.wait_until_rated()  # its next owner then needs the ladder events
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
        self.workers: list[WorkerProcess] = []  # who was seen at it

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


def during(
    scene: Scene, season: CorrectedSeason, breaks: Callable[[], object], *, begun: bool = True
) -> None:
    """Break something while corrections are applied; without `begun`, perhaps before or after."""
    work = Work(scene, season.correct(AT_ONCE))
    season.play(AHEAD)
    if begun:
        work.begun()
    time.sleep(scene.random.uniform(0.0, 0.5))  # the fault comes early or late in the work
    scene.inject()
    breaks()


def corrections_failover(name: str, folder: Path, quick: bool) -> Outcome:
    """Kill a master of a Redis Cluster. Its replica may lack applied parts or checkpoints."""
    six = partial(a_redis_cluster, masters=3, replicas=1)
    with a_corrected_scene(name, folder, quick, redis=six, redis_cluster=True) as (scene, season):
        for _ in range(scene.times(6)):
            victim = scene.random.choice(scene.redis.masters())
            during(scene, season, victim.kill)
            season.play(AHEAD)
            scene.recover()
            victim.start()
            scene.redis.wait_until_whole(3)
        return scene.outcome()


def corrections_hard_lone_broker(name: str, folder: Path, quick: bool) -> Freed:
    """Kill the only broker while corrections are applied, start it, and end hanging transactions:
    the estimator's commit of a correction, or the updater's commit of its events."""
    hanging: list[object] = []
    with a_corrected_scene(name, folder, quick) as (scene, season):
        broker = scene.kafka[0]
        for _ in range(scene.times(5)):
            during(scene, season, broker.kill)
            broker.start()
            scene.recover(lambda: hanging.extend(freed(scene)))
        return Freed(**msgspec.structs.asdict(scene.outcome()), freed=len(hanging))


def corrections_upgrade(name: str, folder: Path, quick: bool) -> Outcome:
    """Replace workers by those of another kernel version while corrections are applied: they get
    SIGKILL or SIGTERM, and the successor applies the correction again. Once a worker is newer,
    older ones' shards may wait, so only the first fault is sure to hit the work on one."""
    with a_corrected_scene(name, folder, quick) as (scene, season):
        scene.crew.module = NEXT_KERNEL
        for number, worker in enumerate(list(scene.crew.workers)):
            breaks = worker.terminate if number == 1 else worker.kill
            during(scene, season, breaks, begun=number == 0)
            worker.wait()
            newer = scene.crew.replace(worker)
            wait_until(newer.has_a_share, "it has a share")
            during(scene, season, lambda: None, begun=False)
        scene.recover()  # no sooner: older workers leave the newer ones' parts alone
        return scene.outcome()


def releases(name: str, folder: Path, quick: bool) -> Outcome:
    """Roll workers and two `serve`, which are asked all the time, from the last release to this
    one while rounds and corrections arrive, and back again. `verify` of both finds no difference.
    """
    last_release.tree()
    apis = [f"{LOOPBACK}:{free_port()}" for _ in range(2)]
    with (
        a_corrected_scene(
            name, folder, quick, first=FIRST // (10 if quick else 1), apis=apis, module=LAST
        ) as (scene, season),
        started(scene, apis, folder) as doors,
    ):
        for module in (THIS_RELEASE, LAST) * scene.times(3):
            scene.crew.module = module
            for worker in list(scene.crew.workers):
                during(scene, season, worker.terminate, begun=False)
                worker.wait()
                scene.crew.replace(worker).wait_ready()
                during(scene, season, lambda: None, begun=False)
            for door in doors:
                door.stop()
                door.module = module
                season.play(AHEAD)
                door.start()
                wait_until_all_answer(doors)
            scene.recover()
            verify(name, scene.settings, module)
        return scene.outcome()


BEFORE_SEEDS, BETWEEN_SEEDS = 400, 60  # Rounds before the first seed, and the most with each fault.
LARGE = 400  # the number of new players in a seed


class SeededSeason(CorrectedSeason):
    def __init__(self, settings: Settings, rounds: Iterator[dict[str, Any]]) -> None:
        super().__init__(settings, rounds)
        self._given: list[dict[str, Any]] = []  # the seeds and resets that were sent

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
    with a_corrected_scene(name, folder, quick, first=BEFORE_SEEDS, season=SeededSeason) as both:
        scene, season = both
        season.seed(2)
        while scene.injected < (KILLS if not quick else 4):
            season.seed(scene.random.randint(1, 4))
            season.play(scene.random.randint(1, BETWEEN_SEEDS))
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


STORIES = (
    corrections, corrections_failover, corrections_hard_lone_broker, corrections_upgrade, releases,
    seeds,
)  # fmt: skip
