"""Commands on real servers whose log has seeds and resets."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.sqlite.reading import DataFile
from stream_rater.config.settings import Settings
from stream_rater.contract.events import rating_changed_from_json
from tests import real
from tests.builders.rated_data_files import rate
from tests.integration.erasing import GERTRUDE, NAME, Start, beliefs, erase, season, stopped
from tests.integration.processes import stream_rater, wait_until
from tests.integration.test_corrections import (
    DUELS,
    RANKED,
    a_round,
    correct,
    rated,
    verified,
)
from tests.integration.test_erase import in_redis, in_topics
from tests.integration.test_move import moved, of_file, submit
from tests.integration.test_rebuild import delete_parts, flush, rebuild
from tests.integration.topics import Finished, read_topic
from tests.rounds import day

Line = dict[str, Any]


def a_seed(number: int, *players: str, ladder: str = RANKED, mu: float = 1700.0) -> Line:
    rows = [{"player": each, "mu": mu, "sigma": 90.0, "rounds": 7} for each in players]
    return {
        "event_type": "players-seeded", "ladder": ladder, "round_id": f"s{number}",
        "at": day(number), "players": rows,
    }  # fmt: skip


def a_reset(number: int, player: str) -> Line:
    return {
        "event_type": "player-reset", "ladder": RANKED, "round_id": f"x{number}",
        "at": day(number), "player": player, "sigma": 300.0,
    }  # fmt: skip


def given(at: Settings, folder: Path, *lines: Line) -> None:
    """Submit seeds and resets."""
    file = folder / "seeds.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in lines))
    done = stream_rater("submit", str(file), settings=at)
    assert done.returncode == 0, done.stderr


def done(at: Settings, *words: str) -> str:
    ended = stream_rater(*words, settings=at)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def causes(at: Settings, player: str) -> list[str | None]:
    """What changed a player's rating, in order: kinds of corrections and seeds, None for a round.
    The first one is the last that the file has."""
    values = (message.value() or b"" for message in read_topic(at, Topics.of(at).changed))
    events = [each for each in map(rating_changed_from_json, values) if each.player == player]
    return [None if each.correction is None else each.correction.cause for each in events]


FIRST: Sequence[Line] = [
    a_seed(0, GERTRUDE, "p0", "never"), a_seed(1, "p1", "p2", ladder=DUELS),
]  # fmt: skip
LATER: Sequence[Line] = [a_seed(100, "p0", "newcomer"), a_reset(101, GERTRUDE)]


def test_a_seeded_file_is_moved_rebuilt_and_erased(
    settings: real.SettingsFactory, generation: Callable[..., Settings], worker_process: Start,
    tmp_path: Path,
) -> None:  # fmt: skip
    """A data file with seeds becomes topics. Workers apply more of them. The void of a seed wakes a
    later one. Rebuilds with and without parts, and an erasure, give the same beliefs."""
    path, at = tmp_path / "ratings.db", settings(shards=3)
    to = generation(at)
    rate(path)
    given(of_file(path), tmp_path, *FIRST)
    submit(path, season(0, 30))
    given(of_file(path), tmp_path, *LATER)
    rate(path)
    assert "4 seeds applied" in verified(of_file(path))
    with_file = DataFile(path)
    before = {player: data for some in with_file.beliefs() for player, data in some}
    with_file.close()
    moved(at, path)
    assert beliefs(at) == before
    assert "4 seeds applied" in verified(at)

    worker = worker_process(at)
    rated(at, *season(40, 12))
    given(at, tmp_path, a_seed(200, "never", "late", mu=1300.0), a_reset(201, "p3"))
    wait_until(Finished(at), "the seeds are applied")
    correct(at, "void", RANKED, "s0")
    rated(at, *season(60, 12), a_round(80, "never", "late", "newcomer"))
    assert "6 seeds applied" in verified(at)
    assert causes(at, "never") == ["players-seeded", "round-voided", None]
    assert causes(at, "newcomer") == ["players-seeded", None]
    shown = done(at, "inspect", "--ladder", RANKED, "--player", "newcomer")
    assert "players-seeded s100" in shown and "r80" in shown
    stopped(worker)

    rated_beliefs = beliefs(at)
    for harm in (flush, delete_parts, flush):
        harm(at)
        ended = rebuild(at, "--replace")
        assert ended.returncode == 0, ended.stderr
        assert "all equal" in verified(at)
        assert beliefs(at).keys() >= {who for who in rated_beliefs if who[1] != "nobody"}

    ended = erase(at, to.topic_prefix, "--pseudonym", NAME)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    assert "2 seeds and 0 corrections name the player" in ended.stdout
    assert not [each for each in (*in_topics(to), *in_redis(at)) if GERTRUDE.encode() in each]
    assert "all equal" in verified(to)
    worker = worker_process(to)
    rated(to, *season(300, 8, NAME))
    assert "all equal" in verified(to)
    stopped(worker)
