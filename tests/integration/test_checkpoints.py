"""Checkpoints on real servers: made by the command and by corrections, and begun at."""

import re
from pathlib import Path

import msgspec

from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.replay.checkpoint import heads_in
from tests.integration import test_corrections
from tests.integration.processes import refused, stream_rater
from tests.integration.test_corrections import RANKED, Start, correct, corrections, rated, season
from tests.real import SettingsFactory


def made(at: Settings, *ladders: str) -> list[str]:
    """What the command says, a line a ladder."""
    ended = stream_rater("checkpoint", *ladders, settings=at)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout.splitlines()


def offsets_of(at: Settings, ladder: str) -> list[int]:
    """The offsets of the ladder's checkpoints, the newest first."""
    store = RedisStore(at)
    try:
        return [each.offset for each in heads_in(store.checkpoints.heads(ladder)) if each.whole]
    finally:
        store.close()


def test_a_correction_begins_at_a_checkpoint(
    settings: SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """A late round needs rounds since a checkpoint, an early one all, equal to a replay, also
    without checkpoints. What cannot be made is said in one line."""
    at = settings(duplicate_window=2, checkpoint_every=10_000)
    worker = worker_process(at)
    rated(at, *season(0, 40))
    first, second = made(at)
    form = r"ladder 'duels': 9 players, of the rounds before offset \d+ of partition \d, in \S+ s"
    assert re.fullmatch(form, first), first
    assert second.startswith(f"ladder '{RANKED}': 9 players")
    assert made(at, RANKED) == [f"ladder '{RANKED}': there is one of all rounds " + place(second)]
    (there,) = offsets_of(at, RANKED)
    rated(at, *season(100, 20))
    read = worker.metric("stream_rater_stage_seconds_count", stage="ReadPiece")
    assert corrections(at, correct(at, "void", RANKED, "r107"))
    assert worker.metric("stream_rater_stage_seconds_count", stage="ReadPiece") == read + 2, (
        "of its players, and of its ids"
    )
    assert corrections(at, correct(at, "void", RANKED, "r7"))
    test_corrections.verified(at)
    assert offsets_of(at, RANKED) == [there], "it was made again"
    assert corrections(at, correct(at, "void", RANKED, "r109"))
    assert worker.metric("stream_rater_stage_seconds_count", stage="ReadPiece") >= read + 4
    store = RedisStore(at)
    for name, head in store.checkpoints.heads(RANKED).items():
        store.checkpoints.drop(RANKED, name, heads_in({name: head})[0].pieces)
    store.close()
    assert corrections(at, correct(at, "void", RANKED, "r111"))
    test_corrections.verified(at)
    assert "ladder 'nowhere' has no rounds: name one that has" in refused(
        at, "checkpoint", "nowhere", code=2
    )
    other = tmp_path / "other.toml"
    other.write_text(
        '[ladders."*".rating]\nsystem = "elo-mmr"\nweight_limit = 0.3\nsigma_limit = 90\n'
    )
    at = msgspec.structs.replace(at, ladders=str(other))
    assert "no checkpoint was made" in refused(at, "checkpoint", RANKED, code=2)


def place(line: str) -> str:
    found = re.search(r"before offset \d+ of partition \d+", line)
    assert found is not None
    return found[0]
