"""`predict` on real servers: the numbers of the service, which are those of the log in a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stream_rater.config.settings import Settings
from tests import real
from tests.integration.processes import WorkerProcess, stream_rater
from tests.integration.test_corrections import RANKED, correct, published_events, rated, season

Start = Callable[..., WorkerProcess]

SIDES = ["p0-2,p1", "p2,new", "p3"]
CORRECTIONS = [
    {"event_type": "player-merged", "ladder": RANKED, "player": "p0-2", "into": "p0"},
    {"event_type": "season-started", "ladder": RANKED, "season": 2, "keep": 0.5, "sigma": 200.0},
]


def predict(at: Settings, *words: str) -> dict[str, Any]:
    done = stream_rater("predict", *words, "--format", "json", settings=at)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_live_as_from_a_file(
    settings: real.SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """Beliefs, probabilities and what a result would change, to the last bit; by the corrections of
    the ladder, which say who plays and draw by a season. Newcomers are no error, nor is a side of
    them alone. Nothing is written. What cannot be predicted is reported in one line: an unknown
    ladder, with the nearest name; another ladders file; players who were removed."""
    at, rounds = settings(shards=3), list(season(0, 60))
    worker_process(at)
    rated(at, *rounds)
    correct(at, "merge", RANKED, "p0-2", "p0")
    correct(at, "season", RANKED, "2", "--keep", "0.5", "--sigma", "200")
    file = tmp_path / "rounds.jsonl"
    lines = [*(each.value for each in rounds), *map(json.dumps, CORRECTIONS)]
    file.write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines if x))
    asked = ["--ladder", RANKED, *SIDES, "--ranks", "2,-,1"]
    live, before = predict(at, *asked), published_events(at)
    assert live == predict(at, "--file", str(file), *asked)
    dealt = ["--ladder", RANKED, ",".join(f"p{i}" for i in range(8)), "--teams", "2"]
    assert predict(at, *dealt) == predict(at, "--file", str(file), *dealt)
    assert published_events(at) == before
    nobody = predict(at, "--ladder", RANKED, "x", "y")
    assert [side["win"] for side in nobody["sides"]] == [0.5, 0.5]

    correct(at, "remove", RANKED, "p1")
    other = tmp_path / "ladders.toml"
    other.write_text('[ladders."*".rating]\nsystem = "topcoder"\n')
    others = msgspec.structs.replace(at, ladders=str(other))
    for place, ladder, sides, code, why in (
        (at, "rankd", ["p2", "p3"], 1, "ladder 'rankd' has no players: no round of it was rated; "
         "the nearest name is 'ranked'"),
        (at, RANKED, ["p1", "p3"], 1, "player 'p1' was removed from ladder 'ranked'"),
        (others, RANKED, ["p2", "p3"], 2, f"ladder 'ranked': the ladders file {other} and the "
         "notes on Kafka differ"),
    ):  # fmt: skip
        done = stream_rater("predict", "--ladder", ladder, *sides, settings=place)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert done.stderr.startswith(f"stream-rater: {why}") and done.stderr.count("\n") == 1
