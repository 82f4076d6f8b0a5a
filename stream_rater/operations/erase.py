"""`stream-rater erase`: writes the log again under a pseudonym (`migrate`).

On Kafka, the new log is in topics of another prefix, which use the same Redis. At the end,
tombstones in the old topics show the erasure to subscribers. A data file is written from nothing,
so that no page of it can hold the id, and the new file takes the place of the old one.
"""

import secrets

from stream_rater import places
from stream_rater.config.errors import BadConfiguration, Failed, named_failures, with_cure
from stream_rater.config.settings import Settings
from stream_rater.contract.events import shown
from stream_rater.operations.migrate import Migration, mentions_in
from stream_rater.operations.rewriting import Mentions, Pseudonym, changes_merge_order
from stream_rater.places import checks
from stream_rater.rounds.validation import id_mistake
from stream_rater.runtime import selfcheck, startup
from stream_rater.runtime.progress import counted

RANDOM_BYTES = 8  # The number of random bytes in a pseudonym that the operator has not chosen.
NOTHING = "nothing was erased"


def erase(
    settings: Settings, player: str, prefix: str, name: str | None, *, delete_old: bool,
    dry_run: bool,
) -> None:  # fmt: skip
    """Replace a player's id by a pseudonym. `name`: the pseudonym; None chooses a random one.
    `prefix`: that of the new topics; empty for a data file. `dry_run`: only report the records that
    name the player. Raises BadConfiguration or Failed."""
    pseudonym, ladders = pseudonym_of(player, name), places.ladders_of(settings)
    startup.configure()
    with named_failures(), places.opened(settings, writes=not dry_run) as place:
        selfcheck.check()
        place.check_erasable(prefix, delete=delete_old)
        checks.agreed(place, ladders, NOTHING)
        if dry_run:
            mentions = mentions_in(place, ladders, pseudonym)
            _announce(mentions, pseudonym)
            print("--dry-run: nothing was written")
            return
        with place.successor(prefix) as target:
            work = Migration(place, target, ladders, pseudonym, NOTHING)
            work.check()
            mentions = work.search()
            _announce(mentions, pseudonym)
            cures = place.cures(target)
            with with_cure(cures.copying):
                work.copy(mentions)
            with with_cure(cures.rebuilding):
                beliefs = work.rebuild()
        print(f"{counted(beliefs, 'belief')}, all equal to those before, bit for bit")
        with with_cure(cures.retiring):
            for line in place.retire(target, work.keys, delete=delete_old):
                print(line)
        print(place.out_of_reach)


def pseudonym_of(player: str, name: str | None) -> Pseudonym:
    """The pseudonym of a player: `name`, or a random one if it is None. Raises BadConfiguration."""
    if name is None:
        name = f"erased-{secrets.token_hex(RANDOM_BYTES)}"
    for what, each in (("PLAYER", player), ("--pseudonym", name)):
        try:
            mistake = id_mistake(each)
            each.encode()
        except UnicodeEncodeError:
            mistake = "not UTF-8"
        if mistake:
            raise BadConfiguration(f"{what}: bad-id: {mistake}: give the id of a player")
    if name == player:
        raise BadConfiguration(f"--pseudonym: {name!r} is the player's id: name another one")
    return Pseudonym(player, name)


def _announce(mentions: Mentions, pseudonym: Pseudonym) -> None:
    """Print how many records name the player, and warn of places where the id stays. Raises what
    `check_mentions` raises."""
    check_mentions(mentions, pseudonym)
    print(
        f"player {shown(pseudonym.player)!r} is to be {shown(pseudonym.name)!r}: "
        f"{mentions} name the player"
    )
    print(
        f"of {counted(mentions.accepted + mentions.rejected, 'record')}, {mentions.rejected:,} "
        "were rejected: they stay empty in the new log"
    )
    mentions.warn()


def check_mentions(mentions: Mentions, pseudonym: Pseudonym) -> None:
    """Raise Failed if no accepted record names the player. Raise BadConfiguration if one names the
    pseudonym, or if the pseudonym would change which of two merged accounts stays in a round
    (`changes_merge_order`)."""
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
