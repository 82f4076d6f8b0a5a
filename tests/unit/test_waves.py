"""Rounds are rated in waves, players as rows. (`property/test_rebuilt_seeds.py` compares bytes.)"""

import random
from collections.abc import Sequence

import numpy as np

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.record import Record
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay.player_index import PlayerTable
from stream_rater.replay.pool import depths
from stream_rater.replay.waves import DueRounds, DueWaves, arranged
from stream_rater.rounds.batch import RoundBatch
from tests.builders.machines import CONFIG
from tests.rounds import as_json, day, ranked, read

OTHER = EloMMR(weight_limit=0.1, sigma_limit=60.0, rho=0.5, drift_per_day=2.0, initial_mu=1000.0)


def a_round(offset: int, rng: random.Random) -> Record:
    """A round of any ladder. Some or all are unfinished, some or all tie, and some are teams."""
    names = rng.sample([f"p{i}" for i in range(40)] + ["Straße", "a\nb", "0/p1"], rng.randint(2, 9))
    places = [rng.choice([0, 1, 2, 2, 3, 4]) for _ in names]
    if rng.random() < 0.1:
        places = [rng.choice([0, 1])] * len(names)
    team = {"team": ["t0", f"t{rng.randint(1, 5)}"], "shares": [1, 0.5], "rank": 2}
    standings = ranked(places, names)
    for entry in standings[: offset % 3]:
        entry["seat"] = "home"
    value = as_json(
        *standings, *([team] if rng.random() < 0.3 else []),
        round_id=f"r{offset}", ladder=rng.choice("abcd"), completed_at=day(rng.randint(0, 99)),
    )  # fmt: skip
    return Record(0, offset, value, received_s=4e9)


def test_who_is_who() -> None:
    """Namesakes of two ladders are two players, whatever ladders and players are called."""
    table = PlayerTable()
    players = [("a", "x"), ("b", "x"), ("a/", "0/x"), ("", "1/x"), ("a", "ü\n")]
    assert table.rows(PlayerColumn.of(players)).tolist() == [0, 1, 2, 3, 4]
    assert table.at(np.array([4, 2, 0])) == [players[4], players[2], players[0]]
    more = PlayerColumn.of([*players[::-1], ("new", "x")])
    assert table.rows(more).tolist() == [4, 3, 2, 1, 0, 5]
    assert table.at(np.array([5, 1])) == [("new", "x"), players[1]]


def test_as_early_as_may_be() -> None:
    """A round waits for those of its players' rounds that came before, and for no other."""
    latest = np.zeros(6, np.int64)
    starts, rows = np.array([0, 2, 4, 6, 8]), np.array([0, 1, 2, 3, 1, 2, 4, 5])
    assert depths(starts, rows, latest).tolist() == [0, 0, 1, 0]
    assert not latest.any()


def test_waves() -> None:
    """All rounds of a wave have the same parameters, and so have successive waves in one call."""
    waves = arranged_games(["ab", "cd", "bc", "ef"], kind=[0, 0, 0, 1])
    assert [wave.rounds.offset.tolist() for wave in waves] == [[0, 1], [3], [2]]
    assert [wave.rounds.rows.tolist() for wave in waves] == [[0, 1, 2, 3], [4, 5], [1, 2]]
    assert [wave.waves.tolist() for wave in waves] == [[0, 2], [0, 1], [0, 1]]
    games = ["ab", "ef", "bc", "cd", "fg"]
    (whole,) = arranged_games(games, together=True)
    assert whole.rounds.offset.tolist() == [0, 1, 2, 4, 3]
    assert whole.waves.tolist() == [0, 2, 4, 5]
    one, other = arranged_games(games, kind=[0, 1, 0, 0, 1], ladder=[3, 7, 3, 3, 7], together=True)
    assert one.rounds.offset.tolist() == [0, 2, 3] and one.waves.tolist() == [0, 1, 2, 3]
    assert other.rounds.offset.tolist() == [1, 4] and other.waves.tolist() == [0, 1, 2]
    changed = arranged_games(games, kind=[0, 0, 0, 1, 1], together=True)
    assert [wave.rounds.offset.tolist() for wave in changed] == [[0, 1, 2], [4, 3]]
    assert [wave.waves.tolist() for wave in changed] == [[0, 2, 3], [0, 1, 2]]
    back = arranged_games(["ab", "bc", "cd"], kind=[1, 0, 1], together=True)
    assert [wave.rounds.offset.tolist() for wave in back] == [[0], [1], [2]]


def arranged_games(
    games: Sequence[str], *, kind: Sequence[int] = (0,), ladder: Sequence[int] = (0,),
    together: bool = False,
) -> list[DueWaves]:  # fmt: skip
    """Rounds of two players each, arranged in waves."""
    rounds = RoundBatch.concat([read(CONFIG, *ranked([1, 2], who)).batch for who in games])
    offset, zeros = np.arange(len(games)), np.zeros(len(games), np.int64)
    rows = np.array([ord(each) - ord("a") for each in "".join(games)])
    found = DueRounds.of(rounds, zeros + kind, zeros + ladder, offset, rows)
    return arranged([found], np.zeros(26, np.int64), together=together)
