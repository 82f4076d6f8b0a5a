"""What the tests of `erase` share: a season with Gertrude in it, and the command."""

import subprocess
from collections.abc import Callable, Iterator
from random import Random

from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Player
from tests import rounds
from tests.integration.processes import WorkerProcess, complaints, stream_rater, wait_until
from tests.integration.test_corrections import DUELS, RANKED, a_round
from tests.integration.test_rebuild import gone
from tests.integration.topics import Bytes

Start = Callable[..., WorkerProcess]
Ended = subprocess.CompletedProcess[str]

GERTRUDE, NAME = "gertrude", "somebody"
PLAYERS = [GERTRUDE, *(f"p{number}" for number in range(7))]


def season(first: int, count: int, who: str = GERTRUDE) -> Iterator[Bytes]:
    """Rounds on two ladders: of four, and on one of them of two teams."""
    random = Random(first)
    players = [who, *PLAYERS[1:]]
    for number in range(first, first + count):
        four = random.sample(players, 4)
        if number % 4 == 0:
            yield a_round(number, *four, ladder=DUELS)
        elif number % 4 == 2:
            teams = {"team": four[:2], "rank": 1}, {"team": four[2:], "shares": [1, 0.5], "rank": 2}
            value = rounds.as_json(*teams, round_id=f"r{number}", ladder=RANKED)
            yield Bytes(value, RANKED.encode())
        else:
            yield a_round(number, *four)


def erase(at: Settings, prefix: str, *words: str, player: str = GERTRUDE) -> Ended:
    return stream_rater("erase", player, "--to", prefix, *words, settings=at)


def refused(at: Settings, prefix: str, *words: str, player: str = GERTRUDE) -> str:
    """What one line says."""
    ended = erase(at, prefix, *words, player=player)
    lines = complaints(ended.stderr)
    assert ended.returncode in (1, 2) and len(lines) == 1, ended.stdout + ended.stderr
    return lines[0]


def stopped(worker: WorkerProcess) -> None:
    """End a worker, and wait until it has left its groups."""
    worker.terminate()
    assert worker.wait() == 0
    wait_until(gone(worker.settings), "it has left")


def beliefs(at: Settings) -> dict[Player, bytes]:
    """Every belief in Redis."""
    store = RedisStore(at)
    try:
        return {player: data for some in store.beliefs() for player, data in some}
    finally:
        store.close()
