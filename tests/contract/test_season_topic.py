"""The topic `season-ended` on Kafka: each standing once, whatever ends a writer."""

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from stream_rater.adapters.kafka.producers import Transactions
from stream_rater.adapters.kafka.season_topic import SeasonTopic, records, topic_of
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.errors import Failed
from stream_rater.config.settings import Settings
from stream_rater.contract import season_ended
from stream_rater.contract.errors import LogTrouble, TopicMismatch
from stream_rater.contract.record import Record
from stream_rater.operations.season_standings import write_standings
from tests import real
from tests.contract.rigs import configure
from tests.integration.topics import read_topic
from tests.waits import HANGS_S, wait_until

pytestmark = pytest.mark.integration

LADDER, SEASON = "eu:{1}", 3
PAGES, ON_A_PAGE = 4, 10


class Standings:
    pages, season, digest = PAGES, SEASON, "d"

    @staticmethod
    def page(number: int) -> list[season_ended.SeasonRecord]:
        """The records of a page, and the mark that ends it."""
        found = [
            season_ended.Standing(
                ladder=LADDER, season=SEASON, player=f"p{i}", rank=i + 1,
                listed=PAGES * ON_A_PAGE, percentile=1.0, tier=None, rating=-float(i), mu=0.0,
                sigma=1.0, rounds=1,
            )
            for i in range(number * ON_A_PAGE, (number + 1) * ON_A_PAGE)
        ]  # fmt: skip
        mark = season_ended.PageWritten(
            ladder=LADDER, season=SEASON, page=number, pages=PAGES, digest="d"
        )
        return [*found, mark]


SUMMARY = season_ended.SeasonKept(
    ladder=LADDER, season=SEASON, started_at=None, ended_at="2026-11-01T00:00:00Z", offset=7,
    players=50, listed=PAGES * ON_A_PAGE, pages=PAGES,
)  # fmt: skip


@pytest.fixture
def at(settings: real.SettingsFactory) -> Settings:
    return settings()


def topic(at: Settings) -> SeasonTopic:
    return SeasonTopic(at, Admin(at), LADDER, SEASON)


def write(at: Settings, store: Any = None) -> None:
    standings: Any = Standings()
    write_standings(store or topic(at), standings, SUMMARY)


def write_page(store: SeasonTopic, number: int) -> None:
    store.write(encoded(*Standings.page(number)))


def encoded(*some: season_ended.SeasonRecord) -> list[Record]:
    return [season_ended.encoded(each, SUMMARY.ended_at) for each in some]


def pages(store: SeasonTopic) -> list[int]:
    """The pages whose marks a writer finds when it begins."""
    found = map(season_ended.decoded, store.begin())
    return [each.page for each in found if isinstance(each, season_ended.PageWritten)]


def left_open(store: SeasonTopic, at: Settings, *messages: tuple[bytes, bytes]) -> Any:
    """Send messages, given as key and value, in a transaction that is left unfinished."""
    transactions: Any = store._transactions

    def send(producer: Any) -> None:
        for key, value in messages:
            transactions.produce_all(producer, topic_of(at), [(0, key, value, [])])
        producer.flush(10.0)

    transactions.begin(send)
    return transactions


def assert_once(at: Settings) -> None:
    """Each player has one record, in order, and so have each page and the season."""
    found = read_topic(at, topic_of(at))
    expected = encoded(*(each for page in range(PAGES) for each in Standings.page(page)), SUMMARY)
    assert [(e.key(), e.value(), e.headers()) for e in found] == [
        (e.key, e.value, e.headers) for e in expected
    ]
    assert len({each.partition() for each in found}) == 1
    for ladder in (None, LADDER):
        assert [*map(season_ended.decoded, records(at, Admin(at), ladder))][-1] == SUMMARY


def test_a_run_writes_all_and_the_next_one_nothing(at: Settings) -> None:
    """The topic is made with a configuration by which it keeps its records."""
    write(at)
    assert_once(at)
    write(at)
    assert_once(at)
    configuration = Admin(at).configuration(topic_of(at))
    assert (configuration["retention.ms"], configuration["cleanup.policy"]) == ("-1", "delete")


def test_a_topic_that_would_delete_standings_is_refused(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before a write, also if the broker's list lacked it. One line has the cure."""
    client: Any = Admin(at)._client
    new = NewTopic(topic_of(at), 4, 1, config={"retention.ms": "86400000"})
    client.create_topics([new])[topic_of(at)].result(HANGS_S)
    with pytest.raises(TopicMismatch) as raised:
        topic(at)
    cure = f"--entity-name {topic_of(at)} --add-config retention.ms=-1`"
    assert str(raised.value).startswith(f"{topic_of(at)}: retention.ms is 86400000, must be -1: ")
    assert str(raised.value).endswith(cure) and "\n" not in str(raised.value)
    late, lists = Admin(at), iter([None])
    listed = late.partitions_if_any
    monkeypatch.setattr(late, "partitions_if_any", lambda name: next(lists, listed(name)))
    with pytest.raises(TopicMismatch, match=r"retention\.ms is 86400000, must be -1"):
        SeasonTopic(at, late, LADDER, SEASON)
    configure(client, topic_of(at), "retention.ms", "-1")
    wait_until(lambda: Admin(at).configuration(topic_of(at))["retention.ms"] == "-1", "it is set")
    write(at)
    assert_once(at)


@pytest.mark.parametrize("before", [0, PAGES - 1])
def test_a_writer_that_ends_inside_a_transaction(at: Settings, before: int) -> None:
    """Its unfinished transaction is aborted; the next writer writes what is missing."""
    first = topic(at)
    first.begin()
    for page in range(before):
        write_page(first, page)
    some = encoded(*Standings.page(before))
    left_open(first, at, *((each.key or b"", each.value or b"") for each in some))
    write(at)
    assert_once(at)


def test_what_an_older_writer_wrote_last_is_seen(
    at: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new writer ends the older one first, and reads the topic after that."""
    older, newer = topic(at), topic(at)
    older.begin()
    renew = Transactions.renew

    def renewed(self: Transactions) -> None:
        write_page(older, 0)
        renew(self)

    monkeypatch.setattr(Transactions, "renew", renewed)
    assert pages(newer) == [0]


def test_a_writer_with_a_broken_connection_reads_again_first(at: Settings) -> None:
    """Another writer may have begun and written the page, so it reads before it writes more."""
    older, newer = topic(at), topic(at)
    older.begin()
    newer.begin()
    write_page(newer, 0)
    transactions: Any = older._transactions
    transactions._on_disconnect("the connection broke")
    with pytest.raises(LogTrouble, match="the connection broke"):
        write_page(older, 0)
    write(at, older)
    assert_once(at)


def test_a_run_that_is_outdone_says_so(at: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails with one line. The newer run continues behind its pages, and no record is twice."""
    store, other, writes = topic(at), topic(at), list[Sequence[Record]]()

    def interrupted(given: Sequence[Record]) -> None:
        writes.append(given)
        if len(writes) == 2:
            other.begin()
        SeasonTopic.write(store, given)

    monkeypatch.setattr(store, "write", interrupted)
    with pytest.raises(Failed, match="another process writes the standings of season 3 now"):
        write(at, store)
    write(at, other)
    assert_once(at)


def test_an_open_transaction_of_another_season_hides_no_mark(
    settings: real.SettingsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer reads to the end of the log, and waits for the transaction that hides the rest."""
    at = settings(partitions=1)
    other = SeasonTopic(at, Admin(at), "na", 1)
    other.begin()
    transactions = left_open(other, at, (b"na:1:p", b"{}"))
    stable_ends, looks = Admin.stable_ends, list[Any]()

    def ended_at_the_third_look(self: Admin, *given: Any) -> Any:
        looks.append(given)
        if len(looks) == 3:
            transactions.abort()
        return stable_ends(self, *given)

    monkeypatch.setattr(Admin, "stable_ends", ended_at_the_third_look)
    first = topic(at)
    first.begin()
    assert len(looks) >= 3, "it waited"
    for page in range(PAGES - 1):
        write_page(first, page)
    assert pages(topic(at)) == [*range(PAGES - 1)]
    write(at)
    keys = [each.key() or b"" for each in read_topic(at, topic_of(at))]
    assert {keys.count(each) for each in keys if each.startswith(b"eu")} == {1}
