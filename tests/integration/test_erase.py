"""`erase` on real servers: the player's id is gone, and every rating is what it was."""

from collections.abc import Callable
from typing import Any

from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.columns.sharding import shards_of
from stream_rater.config.settings import Settings
from stream_rater.contract.events import joined, rating_changed_from_json
from stream_rater.operations.migrate import Digests
from stream_rater.rating import record
from tests import real, rounds
from tests.builders.lines import Bytes, a_correction, a_message, a_seed
from tests.integration.erasing import (
    GERTRUDE,
    NAME,
    beliefs,
    digests,
    erase,
    in_redis,
    season,
    under_new_name,
    where_named,
)
from tests.integration.processes import PATIENTLY, Start, done, refused, stopped, wait_until
from tests.integration.test_corrections import (
    DUELS,
    RANKED,
    correct,
    corrections,
    last_round,
    played,
    published_events,
    verified,
)
from tests.integration.test_rebuild import flush
from tests.integration.topics import in_transactions, not_compared, rated, read_topic

SEEDS = [
    a_message(a_seed(0, GERTRUDE, "p0", "never", ladder=RANKED)),
    a_message(a_correction("player-reset", ladder=RANKED, round_id="x1", at=rounds.day(1),
                           player=GERTRUDE, sigma=300.0)),
]  # fmt: skip


def rounds_of(at: Settings) -> int:
    """How many rounds of the erased player's count."""
    stored = record.decode([beliefs(at)[RANKED, NAME]], 0, 0.0, 1.0)
    return int(stored.header["rounds"][0])


def kept(at: Settings) -> list[str]:
    found = read_topic(at, topic_of(at))
    return [((each.key() or b"") + (each.value() or b"")).decode() for each in found]


def with_a_past(at: Settings, start: Start) -> None:
    """Rate rounds of Gertrude's, alone and in teams, with seeds, invalid records that name her, a
    voided round, a removal, a merge into her, a season's end, a checkpoint and standings."""
    worker = start(at)
    named = rounds.as_json(*rounds.ranked([1, 2], [GERTRUDE, GERTRUDE]), ladder=RANKED)
    rejected = Bytes(named, RANKED.encode()), Bytes(GERTRUDE.encode(), b"ranked")
    joining = played(60, "walter", "p1"), played(61, "p2", "walter")
    rated(at, *SEEDS, *season(0, 60), *rejected, *season(0, 8), *joining)
    in_transactions(at, [played(62, "p4", GERTRUDE)], [played(63, "p4", GERTRUDE)], abort={0})
    correct(at, "void", RANKED, "r11")
    correct(at, "merge", RANKED, "walter", GERTRUDE)
    correct(at, "remove", RANKED, "p6")
    correct(at, "remove", DUELS, GERTRUDE, "--from", rounds.day(200))
    correct(at, "season", RANKED, "1", "--keep", "0.9", "--sigma", "100")
    done(at, "checkpoint")
    done(at, "season-standings", RANKED, "--wait", PATIENTLY)
    rated(at, *season(70, 12))
    in_transactions(at, [played(82, "p4", GERTRUDE)])  # the log ends with the transaction's end
    wait_until(lambda: last_round(at, GERTRUDE).round_id == "r82", "the last one is rated")
    stopped(worker)


def test_the_id_is_gone_and_ratings_are_as_before(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start
) -> None:
    """The id is in no new record and nowhere in Redis. Workers and corrections go on as a replay of
    the new log. Old topics get tombstones; they can be read, and used again after a rebuild."""
    at = settings()
    to = generation(at)
    with_a_past(at, worker_process)
    before, events, last = digests(at), published_events(at), last_round(at, GERTRUDE)
    assert any(GERTRUDE.encode() in each for each in in_redis(at))
    ended = erase(at, to.topic_prefix, "--pseudonym", NAME)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    assert "2 seeds and 2 corrections name the player" in ended.stdout
    topics = "|".join([*Topics.of(at).names, topic_of(at)]).replace(".", r"\.")
    assert f"--delete --topic '{topics}'" in ended.stdout

    assert where_named(at, to) == []
    assert not_compared(to) == []
    assert digests(to) == under_new_name(before)
    assert not read_topic(to, Topics.of(to).rejected)
    assert Admin(to).all_ends(Topics.of(to).rounds) == Admin(at).all_ends(Topics.of(at).rounds)
    again = published_events(to)
    assert set(again) == {(of, NAME if who == GERTRUDE else who) for of, who in events}
    for who, some in again.items():
        name = who[0], GERTRUDE if who[1] == NAME else who[1]
        assert [each.mu for each in some] == [each.mu for each in events[name]]
    standings, renamed = kept(at), kept(to)
    assert len(renamed) == len(standings)
    assert [GERTRUDE in each for each in standings].count(True) == 1
    assert [GERTRUDE in each or NAME in each for each in renamed].count(True) == 1

    worker = worker_process(to)
    rated(to, *season(100, 24, NAME))
    before_it = rounds_of(to)
    assert corrections(to, correct(to, "void", RANKED, last.round_id))
    assert rounds_of(to) == before_it - 1
    rated(to, *season(200, 8, NAME), played(210, "walter", "p3"))
    assert published_events(to)[RANKED, NAME][-1].round_id == "r210", (
        "walter's rounds are the player's"
    )
    assert "2 seeds applied" in verified(to)
    stopped(worker)
    has_tombstones(at)
    goes_back(at, before)


def has_tombstones(at: Settings) -> None:
    """Check that the last record of each of the player's keys has no value, and no other."""
    newest: dict[bytes, Any] = {}
    for message in read_topic(at, Topics.of(at).changed):
        newest[message.key() or b""] = message
    for ladder in (RANKED, DUELS):
        last = newest.pop(joined(ladder, GERTRUDE).encode())
        assert last.value() is None
        assert last.partition() == shards_of([GERTRUDE], at.shards)[0]
    assert all(rating_changed_from_json(each.value()) for each in newest.values())


def goes_back(at: Settings, before: Digests) -> None:
    """Check that no worker uses the old topics, until a rebuild."""
    done(at, "watch", "--from-start", "--wait", "1", "--player", GERTRUDE)
    assert "set topic_prefix to that of the new topics" in refused(at, "run", code=2)
    flush(at)
    done(at, "rebuild")
    assert digests(at) == before
    assert "  erased: " in done(at, "inspect", "--ladder", RANKED, "--player", GERTRUDE)
