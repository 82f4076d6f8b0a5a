"""The checks of `erase`. The text of each error is one line, with the place and the cure."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stream_rater.adapters.kafka.ladder_events import disagreement, read_ladder_events
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topic_rules import LARGEST, advice_to_set, size_of
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import shown
from stream_rater.contract.groups import UPDATERS
from stream_rater.operations import rebuild
from stream_rater.operations.digests import Difference
from stream_rater.operations.rebuild import check_rounds_complete
from stream_rater.operations.rewriting import Mentions, Pseudonym, changes_merge_order
from stream_rater.operations.unfinished import UnfinishedRounds, check_not_torn
from stream_rater.pipeline.corrections.correction_ports import RecordedCorrection
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.runtime.progress import counted

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]*")

AFTER_ALL = 2**62
"""An offset after all records."""


class Generation(NamedTuple):
    """The topics of one prefix."""

    settings: Settings
    admin: Admin

    @property
    def prefix(self) -> str:
        """The prefix of the topics' names."""
        return self.settings.topic_prefix

    @property
    def topics(self) -> Topics:
        """The names of the topics."""
        return self.admin.topics


def check_free(new: Generation, option: str, partitions: Mapping[str, int], old: str) -> None:
    """Raise BadConfiguration if a new topic has or had records, or another number of partitions
    than is needed. `option`: what names the prefix. `partitions`: the numbers that are needed, by
    topic. `old`: what has them."""
    if not TOPIC_NAME.fullmatch(new.prefix):
        raise BadConfiguration(
            f"{option}: {new.prefix!r} cannot begin the name of a topic: use letters, digits, '.', "
            "'_' and '-'"
        )
    found, seasons = new.admin.partitions(), topic_of(new.settings)
    for name, count in {**found, seasons: new.admin.partitions_if_any(seasons) or 0}.items():
        if count and any(new.admin.ends(name, count)):
            raise BadConfiguration(
                f"topic {name} holds records, or once had some: name another {option}, or delete "
                f"the topics of {new.prefix!r}"
            )
        if (needed := partitions.get(name, count)) != count:
            raise BadConfiguration(
                f"topic {name} has {count} partitions, and {old} has {needed}: delete it: it will "
                "be created as it must be"
            )


def check_idle(*generations: Generation) -> None:
    """Raise Failed if a worker of one of these generations runs."""
    for each in generations:
        rebuild.check_idle(each.admin, each.settings)


def check_kernel(begun_by: int) -> None:
    """Raise Failed if the ratings go back to another kernel version than this release's. A rebuild
    cannot compute such ratings. `begun_by`: the version that they go back to."""
    if begun_by != KERNEL_VERSION:
        raise Failed(
            f"ratings go back to kernel version {begun_by}, this release has {KERNEL_VERSION}: run "
            "`stream-rater rebuild --replace` first, which computes all of them again"
        )


def check_ladders(old: Generation, ladders: Ladders) -> frozenset[str]:
    """Return the ladders with corrections. Raises BadConfiguration if the ladders file is not that
    of the workers."""
    ladder_log = read_ladder_events(old.settings, old.admin)
    if why := disagreement(old.settings, ladders, ladder_log):
        raise BadConfiguration(f"{why}: nothing was erased")
    return frozenset(ladder_log.corrections)


def check_none_deferred(corrections: Mapping[str, Sequence[RecordedCorrection]]) -> None:
    """Raise Failed if one of these corrections is deferred until corrections-applied."""
    for ladder, recorded in corrections.items():
        if waiting := LadderEdits(recorded).waiting(AFTER_ALL):
            text = counted(len(waiting), "correction")
            raise Failed(
                f"ladder {ladder!r}, offset {waiting[0].offset}: {text} waiting for "
                "corrections-applied: start workers, send `stream-rater correct apply`, stop them "
                "again, and run it again"
            )


def check_drained(old: Generation, partitions: Mapping[str, int]) -> dict[int, int]:
    """Return the end offset of each partition of the rounds. Raises Failed if a round was deleted
    or lost, or is not finished, or if a part is not applied."""
    topics, admin = old.topics, old.admin
    check_rounds_complete(admin.starts(topics.rounds, partitions[topics.rounds]))
    check_not_torn(old.settings, admin, partitions[topics.rounds])
    ends = dict(enumerate(admin.ends(topics.rounds, partitions[topics.rounds])))
    rounds = UnfinishedRounds(old.settings, admin).look(ends)
    part_ends = dict(enumerate(admin.ends(topics.parts, partitions[topics.parts])))
    parts = admin.left(UPDATERS, topics.parts, part_ends)
    for topic, left in ((topics.rounds, rounds), (topics.parts, parts)):
        for p, offsets in left.items():
            if offsets:
                raise Failed(
                    f"{topic}, partition {p}: {counted(len(offsets), 'record')} not finished: stop "
                    "the reports of rounds, start workers, wait until `stream-rater verify` finds "
                    "all equal, stop them, and run it again"
                )
    return ends


def check_quiet(old: Generation, ends: Mapping[int, int]) -> None:
    """Raise Failed if a record has come to the topic of rounds since it had these ends."""
    for partition, end in enumerate(old.admin.ends(old.topics.rounds, len(ends))):
        if end != ends[partition]:
            raise Failed(
                f"{old.topics.rounds}, partition {partition}: "
                f"{counted(end - ends[partition], 'record')} came after the command began: stop "
                "the reports of rounds, and let workers of these topics finish them"
            )


def check_mentions(mentions: Mentions, pseudonym: Pseudonym) -> None:
    """Raise Failed if no accepted record names the player. Raise BadConfiguration if one names the
    pseudonym, or if the pseudonym would decide otherwise than the id which of two merged accounts
    stays in a round (`changes_merge_order`)."""
    if not mentions:
        raise Failed(
            f"unknown-player: no accepted record names {shown(pseudonym.player)!r}: "
            "`stream-rater watch --from-start` shows the ids of players"
        )
    if mentions.conflict:
        raise BadConfiguration(
            f"--pseudonym: {shown(pseudonym.name)!r} is a player already "
            f"({mentions.conflict}): name another"
        )
    if mentions.verdicts is not None and (
        found := changes_merge_order(mentions.verdicts, pseudonym)
    ):
        ladder, other = map(shown, found)
        raise BadConfiguration(
            f"--pseudonym: on ladder {ladder!r} the player and {other!r} were merged into one, and "
            "where both stand in a round or a seed the lesser name stays: name one that comes "
            f"{'after' if found[1] < pseudonym.player else 'before'} {other!r}, as the id does"
        )


def check_sizes(new: Generation, old: Generation) -> None:
    """Raise BadConfiguration if the largest record of a new topic may be smaller than that of the
    old one."""
    for topic, twin in zip(new.topics.names, old.topics.names, strict=True):
        size, needed = (
            size_of(each.admin.configuration(name)) for each, name in ((new, topic), (old, twin))
        )
        if size < needed:
            command = advice_to_set(new.settings, topic, LARGEST, str(needed))
            raise BadConfiguration(
                f"{topic}: {LARGEST} is {size}, and that of {twin} is {needed}: {command}, and run "
                "it again"
            )


def check_equal(found: Difference, count: int) -> None:
    """Raise Failed if a belief has changed. `count`: the number of rebuilt beliefs."""
    if (first := found.first) is None:
        return
    ladder, player = map(shown, first)
    raise Failed(
        f"of {counted(count, 'belief')} rebuilt from the new topics, {len(found.differing)} are "
        f"different, {len(found.missing)} missing and {len(found.surplus)} too many, first ladder "
        f"{ladder!r}, player {player!r}: Redis was not what the log says before: nothing was erased"
    )
