"""`stream-rater move`: moves a data file, or the topics of another Kafka, to Kafka and Redis
(`migrate`). `stream-rater backup`: copies a data file while a process may write to it.

The new topics and Redis must be empty. Redis is marked as that of an unfinished move, and no
process uses it, until the copy is compared. Then the old place is marked as moved, so that no round
is rated in two places. Before that it does not change: it can still be used, or moved again.
"""

from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import structs

from stream_rater import places
from stream_rater.config.errors import BadConfiguration, Failed, named_failures, with_cure
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.operations.migrate import Migration
from stream_rater.runtime import selfcheck, startup
from stream_rater.runtime.progress import counted


def move(settings: Settings, old: Settings, *, from_kafka: bool) -> None:
    """Move the ratings and the log from the place of the settings `old` to that of `settings`,
    which is on Kafka. `old` names a data file or, with `from_kafka`, topics and a Redis. Raises
    BadConfiguration or Failed."""
    if from_kafka:
        _check_apart(settings, old)
    ladders = ladders_of_settings(settings)
    with named_failures(), places.opened(old, writes=True) as source:
        own = places.ladders_of(old)
        if own is not ANY_LADDER and not (from_kafka or settings.ladders):
            raise BadConfiguration(
                f"{source.name}: without a ladders file its rounds are rated by parameters of its "
                f"own: write '{msgspec.json.encode(own).decode()}' to a file ladders.json, which "
                f"workers need, too, and set {PREFIX}LADDERS to it"
            )
        startup.configure()
        selfcheck.check()
        new = structs.replace(settings, data="", partitions=source.partitions)
        with places.opened(new) as target:
            work = Migration(source, target, ladders, None, "nothing was moved")
            work.check()
            target.check_new(f"{PREFIX}TOPIC_PREFIX", source)
            after_failure = (
                f"{source.name} is as it was, and can be used on: delete the topics of "
                f"{new.topic_prefix!r}, or name another {PREFIX}TOPIC_PREFIX, empty Redis, and run "
                "it again"
            )
            with with_cure(after_failure):
                work.copy(work.search())
                beliefs = work.rebuild()
                target.end_copy()
            source.mark_moved(target.name)
            with with_cure(
                f"{source.name} is marked as moved: run `stream-rater rebuild --replace`"
            ):
                target.end_rebuild()
        print(
            f"{counted(sum(work.ends), 'record')} are in the topics and "
            f"{counted(beliefs, 'belief')} in Redis. These and each player's newest event are all "
            f"equal to those in {source.name}, bit for bit. Next: start `stream-rater run`, and "
            "give game backends the new address"
        )


def _check_apart(settings: Settings, old: Settings) -> None:
    """Raise BadConfiguration unless `settings` names other topics and another Redis than `old`, and
    the same duplicate window."""
    if (old.kafka, old.topic_prefix) == (settings.kafka, settings.topic_prefix):
        raise BadConfiguration(
            f"--from: it names the topics of {settings.topic_prefix!r} on {settings.kafka}, as the "
            f"present settings do: name another {PREFIX}KAFKA or {PREFIX}TOPIC_PREFIX for the new "
            "place"
        )
    if old.redis == settings.redis:
        raise BadConfiguration(
            f"--from: it names the Redis of {PREFIX}REDIS: name another one for the new place, or "
            "another database of it"
        )
    if old.duplicate_window != settings.duplicate_window:
        raise BadConfiguration(
            f"--from: duplicate_window is {old.duplicate_window}, and {settings.duplicate_window} "
            "in the new place: which rounds are accepted depends on it: give both the same"
        )


def backup(path: Path, to: Path) -> str:
    """Copy a data file as it is at one instant to a new file, and check the copy. The copy has its
    name only once it is complete, checked and on the disk. Returns a line about it. Raises
    Failed."""
    from stream_rater.places.file import FilePlace  # not above: `move` between Kafkas needs no LMDB

    with named_failures():
        _check_free(to)
        with closing(FilePlace(Settings(), path)) as file, file.copied_to(to) as copy:
            if faults := copy.faults():
                raise Failed(f"{path}: its copy is damaged, so it is, too: {faults[0]}")
            rounds, changes = sum(copy.ends()), sum(copy.changed_ends())
            _check_free(to)
    return (
        f"{to}: {counted(rounds, 'record')} and {counted(changes, 'rating change')}; `stream-rater "
        f"verify --data {to}` compares its ratings with its rounds"
    )


def _check_free(to: Path) -> None:
    if to.exists():
        raise Failed(f"{to}: there is such a file already: name another one")
