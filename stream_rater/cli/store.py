"""`stream-rater rebuild`, `verify`, `inspect` and other commands for operators."""

from pathlib import Path

import click
import msgspec

from stream_rater.cli import options as common
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import read_settings
from stream_rater.config.settings import Settings


@click.command()
@click.option("--replace", is_flag=True, help="Replace what Redis, or the data file, holds.")
@common.CORES
@click.option(
    "--fill", metavar="N", type=common.COUNT,
    help="How many empty records may be appended to a partition that lost some, where it "
    "must be more than 50,000,000.",
)  # fmt: skip
@common.with_data
def rebuild(replace: bool, cores: int | None, fill: int | None, settings: Settings) -> None:
    """Replay the log into an empty Redis, while no worker runs; they then go on from there. Of a
    data file, the ratings are replaced, while its process is stopped."""
    from stream_rater.operations.rebuild import rebuild as run_rebuild

    run_rebuild(settings, replace=replace, cores=cores, fill=fill)


@click.command()
@click.argument("ladders", nargs=-1, metavar="[LADDER]...")
@common.with_settings
def checkpoint(ladders: tuple[str, ...], settings: Settings) -> None:
    """Make checkpoints of ladders (all, if none is named): a correction of a later round is then
    applied sooner. Workers may run at the same time."""
    from stream_rater.operations.ladder_replay import checkpoint as make_checkpoints

    common.check_servers(settings, "checkpoint")
    make_checkpoints(settings, ladders)


@click.command("season-standings")
@click.argument("ladder")
@click.argument("number", type=click.IntRange(min=0), required=False)
@common.WAIT
@common.with_data
def season_standings(ladder: str, number: int | None, wait_s: float, settings: Settings) -> None:
    """Keep who stood where when season NUMBER ended: just before the next one began. 0 is the time
    before the first season. Without a number: all seasons that have ended and are not kept."""
    from stream_rater.operations.season_standings import season_standings as keep

    for line in keep(settings, ladder, number, wait_s):
        print(line, flush=True)


@click.command()
@click.argument("player")
@click.option("--to", "prefix", help="Prefix of the new topics; not for a data file.")
@click.option("--pseudonym", help="The name in place of the id; a random one otherwise.")
@click.option("--delete-old", is_flag=True, help="Delete the old topics once all is done.")
@click.option("--dry-run", is_flag=True, help="Copy nothing: show which records name the player.")
@common.with_data
def erase(
    player: str, prefix: str | None, pseudonym: str | None, settings: Settings, **options: bool
) -> None:
    """Put a pseudonym in the place of a player's id, on all ladders, while no worker runs.

    Kafka's log cannot be changed, so it is copied to topics of another prefix. A data file is
    written again. All ratings stay as they are.
    """
    from stream_rater.operations.erase import erase as erase_player

    erase_player(settings, player, prefix or "", pseudonym, **options)


@click.command()
@common.WAIT
@click.option(
    "--sample", type=common.SHARE,
    help="Compare only about this share of the ladders, always the same.",
)  # fmt: skip
@click.option(
    "--mirror", type=common.NEW_FILE, metavar="MIRROR",
    help="Compare only the log, with a mirror by this file of settings.",
)  # fmt: skip
@common.CORES
@common.with_data
def verify(
    wait_s: float, sample: float | None, mirror: Path | None, cores: int | None, settings: Settings
) -> None:
    """Compare every belief with a sequential replay of the log, bit for bit. With
    --sample, those of some ladders: it says how many, and that nothing else is proven. With
    --mirror, the log with its mirror: the same records must be accepted at the same offsets."""
    if mirror is not None:
        from stream_rater.operations.verify import compare_mirror

        if sample is not None or cores is not None:
            raise BadConfiguration("--mirror compares no beliefs: leave --sample and --cores out")
        common.check_servers(settings, "verify --mirror")
        print(compare_mirror(settings, read_settings(mirror, {})))
        return
    from stream_rater.operations import verify as operation

    print(operation.verify(settings, wait_s, sample=sample, cores=cores))


@click.command()
@click.option("--ladder", help="With --player: the ladder of the belief.")
@click.option("--player", help="Without one: how topics are kept, how far, who has them.")
@common.with_data
def inspect(ladder: str | None, player: str | None, settings: Settings) -> None:
    """Show a player's belief, their last rounds, and where the belief is stored; or a ladder's
    corrections; or all topics."""
    if ladder is None and player is not None:
        raise BadConfiguration("give --ladder with --player")
    from stream_rater.operations.inspect import inspect as describe

    for line in describe(settings, ladder, player):
        print(line)


@click.command()
@click.argument("file", type=common.NEW_FILE)
@click.argument("to", type=common.NEW_FILE)
@common.one_line_errors
def backup(file: Path, to: Path) -> None:
    """Copy a data file to a new file, while its process may run, and check the copy."""
    from stream_rater.operations.move import backup as copy

    print(copy(file, to))


@click.command()
@click.argument("file", type=common.NEW_FILE, required=False)
@click.option(
    "--from", "old", type=common.NEW_FILE,
    help="Settings of the Kafka and Redis to move, in place of a data file.",
)  # fmt: skip
@common.with_settings
def move(file: Path | None, old: Path | None, settings: Settings) -> None:
    """Move a data file, or another Kafka with its Redis, to the Kafka and Redis of the settings,
    while no process of the old place runs. Ratings and offsets stay as they are, and nothing starts
    in the old place again."""
    from stream_rater.operations.move import move as move_log

    if (file is None) == (old is None):
        raise BadConfiguration("name a data file, or give --from with a file of settings")
    source = read_settings(old, {}) if old else msgspec.structs.replace(settings, data=str(file))
    move_log(settings, source, from_kafka=old is not None)
