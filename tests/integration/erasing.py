"""What the tests of `erase` share: a season with Gertrude in it, and the command."""

from collections.abc import Iterator
from contextlib import closing
from random import Random

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Player
from stream_rater.operations.migrate import Digests, digests_of
from tests import rounds
from tests.builders.lines import Bytes
from tests.integration.processes import Ended, stream_rater
from tests.integration.processes import refused as command_refused
from tests.integration.test_corrections import DUELS, RANKED, played
from tests.integration.topics import headers_of, read_topic

GERTRUDE, NAME = "gertrude", "somebody"
PLAYERS = [GERTRUDE, *(f"p{number}" for number in range(7))]


def season(first: int, count: int, who: str = GERTRUDE) -> Iterator[Bytes]:
    """Rounds on two ladders: of four, and on one of them of two teams."""
    random = Random(first)
    players = [who, *PLAYERS[1:]]
    for number in range(first, first + count):
        four = random.sample(players, 4)
        if number % 4 == 0:
            yield played(number, *four, ladder=DUELS)
        elif number % 4 == 2:
            teams = {"team": four[:2], "rank": 1}, {"team": four[2:], "shares": [1, 0.5], "rank": 2}
            value = rounds.as_json(*teams, round_id=f"r{number}", ladder=RANKED)
            yield Bytes(value, RANKED.encode())
        else:
            yield played(number, *four)


def erase(at: Settings, prefix: str, *words: str, player: str = GERTRUDE) -> Ended:
    return stream_rater("erase", player, "--to", prefix, *words, settings=at)


def refused(at: Settings, prefix: str, *words: str, player: str = GERTRUDE) -> str:
    return command_refused(at, "erase", player, "--to", prefix, *words)


def beliefs(at: Settings) -> dict[Player, bytes]:
    with closing(RedisStore(at)) as store:
        return {player: data for some in store.beliefs() for player, data in some}


def digests(at: Settings) -> Digests:
    """The digests of all beliefs on ladders with corrections."""
    return digests_of([list(beliefs(at).items())], {RANKED, DUELS})


def under_new_name(found: Digests) -> Digests:
    return {(of, NAME if who == GERTRUDE else who): each for (of, who), each in found.items()}


def where_named(at: Settings, to: Settings) -> list[bytes]:
    """All that has the id: in the topics of `to`, and in the Redis of `at`."""
    found = [*in_topics(to), *in_redis(at)]
    assert len(found) > 20
    return [each for each in found if GERTRUDE.encode() in each]


def in_redis(at: Settings) -> Iterator[bytes]:
    with connect(at) as client:
        for key in client.scan_iter():
            yield key
            if client.type(key) == b"hash":
                for field, value in client.hgetall(key).items():
                    yield from (field, value)
            else:
                yield client.get(key)


def in_topics(at: Settings) -> Iterator[bytes]:
    """Every key, value and header's value."""
    for topic in Topics.of(at).names:
        for message in read_topic(at, topic):
            yield from (message.key() or b"", message.value() or b"")
            yield from (content or b"" for _, content in headers_of(message))
