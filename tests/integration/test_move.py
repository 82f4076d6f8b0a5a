"""`move` on real servers: a data file becomes topics and a Redis, and no rating changes."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.sqlite.names import seasons_path
from stream_rater.adapters.sqlite.reading import data_file
from stream_rater.adapters.sqlite.season_file import SeasonFile
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Player
from stream_rater.places import opened
from tests.builders.commands import as_file
from tests.builders.kills import halting, short
from tests.builders.lines import Bytes, Line, a_correction, a_message, a_seed
from tests.builders.rated_data_files import rate
from tests.contract.places import check_copied
from tests.integration import processes
from tests.integration.erasing import GERTRUDE, beliefs, season
from tests.integration.processes import Start, done, refused
from tests.integration.test_corrections import DUELS, RANKED, correct, played, verified
from tests.integration.topics import not_compared, published, rated, read_topic
from tests.real import SettingsFactory
from tests.rounds import day

EFFECTS = [
    "stream_rater.adapters.redis.metadata.StoreMetadata.mark_unfinished",
    "stream_rater.adapters.kafka.topics.Admin.create_topics",
    "stream_rater.adapters.kafka.producers.Copier.write",
    "stream_rater.adapters.kafka.topics.Admin.commit",
    "stream_rater.adapters.kafka.producers.PartsProducer.scatter",
    "stream_rater.adapters.redis.metadata.StoreMetadata.begin_rebuild",
    "stream_rater.adapters.redis.store.RedisStore.apply",
    "stream_rater.adapters.kafka.ladder_events.LadderEvents.write",
    "stream_rater.operations.migrate.difference",
    "stream_rater.adapters.sqlite.database.Database.mark_moved",
]
"""The steps of `move`, in the order of the first calls, before it releases Redis."""


def a_reset(number: int, player: str) -> Line:
    about = {"round_id": f"x{number}", "at": day(number), "player": player, "sigma": 300.0}
    return a_correction("player-reset", ladder=RANKED, **about)


def of_file(path: Path) -> Settings:
    return Settings(data=str(path))


def submit(path: Path, records: Iterable[Bytes] = (), seeds: Iterable[Line] = ()) -> None:
    reported = (json.loads(each.value or b"") for each in records)
    done(of_file(path), "submit", as_file(path.with_name("rounds.jsonl"), [*seeds, *reported]))


def with_a_past(path: Path) -> None:
    """Rate a season with duplicates, seeds, corrections (one refused, one pending)."""
    rate(path)
    first = a_seed(0, GERTRUDE, "p0", "never", ladder=RANKED, rounds=7)
    submit(path, seeds=[first, a_seed(1, "p1", "p2", ladder=DUELS)])
    submit(path, [*season(0, 60), *season(0, 4), played(60, "walter", "p1")])
    rate(path)
    done(of_file(path), "correct", "void", RANKED, "r11")
    done(of_file(path), "correct", "void", RANKED, "nothing")
    done(of_file(path), "correct", "merge", RANKED, "walter", "p2")
    rate(path)
    submit(path, season(61, 9))
    done(of_file(path), "correct", "season", RANKED, "1", "--keep", "0.8", "--sigma", "100")
    done(of_file(path), "correct", "remove", RANKED, "p6", "--batched")
    submit(path, season(70, 12), [a_seed(100, "p0", "newcomer", ladder=RANKED),
                                  a_reset(101, GERTRUDE)])  # fmt: skip
    rate(path)


def beliefs_in(path: Path) -> dict[Player, bytes]:
    with data_file(str(path)) as file:
        return {player: data for some in file.beliefs() for player, data in some}


def causes(at: Settings, player: str) -> list[str | None]:
    """What changed a player's rating: in order, the kind of correction or seed; None: a round."""
    events = [each for each in published(at) if each.player == player]
    return [None if each.correction is None else each.correction.cause for each in events]


def test_a_file_is_moved(settings: SettingsFactory, worker_process: Start, tmp_path: Path) -> None:
    """To other numbers of partitions and shards. Workers go on with rounds, seeds, corrections of
    old rounds and seeds, and the pending one. The file is not used any more."""
    path, at = tmp_path / "ratings.db", settings(shards=3)
    with_a_past(path)
    done(of_file(path), "season-standings", RANKED)
    before = beliefs_in(path)
    kept = {each.key: each.value for each in SeasonFile(seasons_path(path)).records()}
    with opened(of_file(path)) as file:  # opened first: once it is moved, nobody can open it
        assert "equal to those in" in done(at, "move", path, quiet=True)
        with opened(at) as new:
            assert check_copied(file, new) == 5
        ends = file.ends()
    assert not_compared(at) == []
    assert beliefs(at).keys() == before.keys()
    standings = read_topic(at, topic_of(at))
    assert {message.key(): message.value() for message in standings} == kept
    assert len(standings) == len(kept) > 5
    assert "season 0: kept before" in done(at, "season-standings", RANKED)

    worker_process(at)
    rated(at, *season(100, 24))
    correct(at, "void", RANKED, "r12")
    correct(at, "apply", RANKED)
    later = a_seed(200, "never", "late", ladder=RANKED, mu=1300.0, rounds=7)
    rated(at, a_message(later), a_message(a_reset(201, "p3")))
    correct(at, "void", RANKED, "s0")
    rated(at, played(250, "never", "late", "newcomer"))
    assert "6 seeds applied" in verified(at)
    assert causes(at, "never") == ["players-seeded", "round-voided", None]
    assert causes(at, "newcomer") == ["players-seeded", None]
    shown = done(at, "inspect", "--ladder", RANKED, "--player", "newcomer")
    assert "players-seeded s100" in shown and "r250" in shown
    assert max(each.offset for each in published(at)) >= min(end for end in ends if end)

    assert "was moved to " in refused(at, "move", path)
    assert "was moved to " in refused(of_file(path), "verify", code=1)


def cannot_be_moved(path: Path, at: Settings, other: Settings) -> None:
    """Other partitions, another window and a Redis in use are refused, each with a remedy."""
    Admin(other).create_topics()
    assert f"partitions, and {path} has 3: delete it" in refused(other, "move", path)
    window = msgspec.structs.replace(at, duplicate_window=7)
    assert "it was begun with duplicate_window = 100000" in refused(window, "move", path)
    with connect(at) as client:
        client.hset("{0}:position", "applied", 1)
        assert "holds ratings: name another one, or empty it" in refused(at, "move", path)
        client.delete("{0}:position")


def test_a_move_is_killed(
    settings: SettingsFactory, generation: Callable[..., Settings], tmp_path: Path
) -> None:
    """Until the file is marked as moved, it can be used on, and moved to another place. From then
    on, only a rebuild of the new place is missing."""
    path, at = tmp_path / "ratings.db", settings(shards=2)
    rate(path)
    submit(path, season(0, 24))
    assert f"{path}: 24 records not rated yet: let `stream-rater standalone" in refused(
        at, "move", path
    )
    rate(path)
    cannot_be_moved(path, at, generation(at, "used"))
    before, made = beliefs_in(path), list[str]()
    words = ["move", str(path)]
    with halting(words, processes.environment_of(at), EFFECTS, tmp_path / "first.log") as halts:
        for name in halts:
            made.append(name)
            assert beliefs_in(path) == before, made
            if name == "migrate.difference":
                break
    rate(path)
    assert "holds records, or once had some" in refused(at, "move", path)
    half = f"the move of {path} to this place is unfinished: use {path} on"
    for command in ("run", "serve", "verify", "rebuild --replace"):
        assert half in refused(at, *command.split()), command
    to = generation(at)
    with halting(words, processes.environment_of(to), EFFECTS, tmp_path / "second.log") as halts:
        for name in halts:
            made.append(name)
            if name == "Database.mark_moved":
                break
    assert {*made} == {*map(short, EFFECTS)}, (tmp_path / "second.log").read_text()
    assert "was moved to " in refused(at, "move", path)
    assert "a rebuild of the store is unfinished" in refused(to, "run", code=2)
    done(to, "rebuild", "--replace")
    assert beliefs(to) == before
    assert "all equal" in verified(to)
