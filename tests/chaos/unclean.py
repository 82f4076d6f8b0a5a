"""An unclean leader election: Kafka loses records that it has acknowledged, and Redis keeps what
came of them."""

import sys
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    PartitionMetadata,
    ResourceType,
)

from local.servers import Server
from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topic_rules import MIN_INSYNC, UNCLEAN
from stream_rater.adapters.kafka.topics import Topics
from tests.brokers import three_brokers
from tests.chaos.redis_faults import rebuilt
from tests.chaos.scene import AT_ONCE, MOST_MISTAKES, Outcome, Scene, a_scene, verify
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import other_producers
from tests.waits import STILL_S

FIRST_NODE = 1  # the first broker's node id
ADVICE = "run `stream-rater rebuild --replace`"


class Torn(Outcome, frozen=True, kw_only=True):
    """An outcome after the log lost records.

    `wrong` counts the ratings in the store that are not of all rounds that were reported. `verify`
    has compared their numbers. No event of a lost round can be taken back, so the events are
    counted apart, and the judge does not judge them.
    """

    vanished: int  # the rounds that the log lost, although Kafka had acknowledged them
    refusals: int  # how often a worker refused the log
    events_lost: int  # the changes that are in the store, and whose event is not in the log
    events_again: int  # the second events of rounds that were lost and reported again


def unclean_election(name: str, folder: Path, quick: bool) -> Torn:
    """Let each topic have two copies and allow unclean elections. Kill one of the two brokers of
    the rounds, report more, kill the other one, and let the first come back: it leads, and the log
    is what it has. Rounds are reported until an operator does what the workers ask for, and the
    lost ones are reported again."""
    vanished = refusals = 0
    with a_scene(
        name, folder, quick, kafka=three_brokers, replication=2, partitions=1,
    ) as scene:  # fmt: skip
        admin = AdminClient({"bootstrap.servers": scene.settings.kafka}, logger=CLIENT_LOGGER)
        _allow(scene, admin)
        for _ in range(scene.times(3)):
            scene.season.play(AT_ONCE)
            scene.wait_until_rated()
            leader, follower = _copies(scene, admin)
            follower.kill()
            _wait_for_copies(scene, admin, 1)
            lost = scene.season.play(AT_ONCE)
            scene.wait_until_rated()
            scene.inject()
            leader.kill()
            follower.start()
            other_producers()  # an idempotent producer notices the loss, and ends with an error
            scene.season.play(AT_ONCE // 4)
            leader.start()
            _wait_for_copies(scene, admin, 2)
            vanished += len(lost)
            refusals += _wait_for_refusal(scene)
            rebuilt(scene)
            scene.season.replay(lost)
            scene.recover()
        return _outcome(scene, vanished, refusals)


def _wait_for_refusal(scene: Scene) -> int:
    """Wait until a worker refuses to continue. Returns how many do."""

    def refusing() -> list[WorkerProcess]:
        return [each for each in scene.crew.workers if ADVICE in each.log()]

    wait_until(lambda: bool(refusing()), f"{scene.name}: a worker refuses the log")
    return len(refusing())


def _outcome(scene: Scene, vanished: int, refusals: int) -> Torn:
    """What is in the store and in the log at the end."""
    scene.wait_until_rated()
    verify(scene.name, scene.settings)
    found, wrong = scene.season.tally(), scene.season.rated_otherwise()
    for line in wrong[:MOST_MISTAKES]:
        sys.stderr.write(f"{scene.name}: {line}\n")
    return Torn(
        fault=scene.name, injected=scene.injected, updates=scene.season.updates,
        lost=0, doubled=0, wrong=len(wrong), recoveries=len(scene.recoveries_s),
        recovery_s=round(max(scene.recoveries_s), 2),
        vanished=vanished, refusals=refusals, events_lost=found.lost, events_again=found.doubled,
    )  # fmt: skip


def _allow(scene: Scene, admin: AdminClient) -> None:
    """Let one copy be enough to write, and allow unclean elections, for the topics of the
    service."""
    topics = Topics.of(scene.settings)
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in ((MIN_INSYNC, "1"), (UNCLEAN, "true"))
    ]
    wanted = [
        ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        for name in (topics.rounds, topics.parts, topics.changed)
    ]
    for done in admin.incremental_alter_configs(wanted).values():
        done.result(STILL_S)


def _copies(scene: Scene, admin: AdminClient) -> tuple[Server, Server]:
    """The broker that leads the rounds, and the other one that has them."""
    rounds = _rounds(scene, admin)
    (other,) = set(rounds.replicas) - {rounds.leader}
    return scene.kafka[rounds.leader - FIRST_NODE], scene.kafka[other - FIRST_NODE]


def _rounds(scene: Scene, admin: AdminClient) -> PartitionMetadata:
    """The only partition of the rounds."""
    rounds = Topics.of(scene.settings).rounds
    return admin.list_topics(rounds, timeout=STILL_S).topics[rounds].partitions[0]


def _wait_for_copies(scene: Scene, admin: AdminClient, count: int) -> None:
    wait_until(lambda: len(_rounds(scene, admin).isrs) == count, f"{count} copies are in sync")
