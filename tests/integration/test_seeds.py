"""Seeds and resets on real servers, among rounds and corrections."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.contract.seeds import SEEDS
from tests import real
from tests.chaos.corrected import matches
from tests.chaos.correcting import LADDERS_FILE
from tests.chaos.seeded import LARGE, SeededSeason
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import read_topic

Start = Callable[..., WorkerProcess]


def test_seeds_among_rounds_and_corrections(
    settings: real.SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """Two workers share the work, and one of them dies in the midst of it. Each change is published
    once, with the values of a replay of the edited log, and the store has the beliefs of that
    replay, to the bit."""
    ladders = tmp_path / "ladders.toml"
    ladders.write_text(LADDERS_FILE)
    at = settings(partitions=1, shards=3, ladders=str(ladders))
    season = SeededSeason(at, matches())
    first, second = worker_process(at), worker_process(at)
    season.seed(3)
    season.play(60)
    season.correct(2)
    wait_until(season.finished, "all is rated", moves=season.finished.moves)
    for turn in range(4):
        season.seed(4)
        season.play(20)
        season.correct(3)
        season.seed(2)
        if turn == 2:
            first.kill()
            first = worker_process(at)
    wait_until(season.finished, "all is rated", moves=season.finished.moves)
    found = season.tally()
    assert (found.lost, found.doubled, found.mistakes) == (0, 0, [])
    messages = read_topic(at, Topics.of(at).changed)
    events = [rating_changed_from_json(each.value() or b"") for each in messages]
    causes = Counter(each.correction.cause for each in events if each.correction)
    assert causes["players-seeded"] > LARGE
    assert causes["player-reset"] > 0
    assert set(SEEDS) < causes.keys()
    applied = [each.metric("stream_rater_seeds_total") for each in (first, second)]
    assert sum(applied) > 0
