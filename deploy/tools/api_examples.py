"""The examples in the API's document are what a standalone process answers to these requests.

`make reference` writes them again.
"""

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from local.tools import ROOT
from stream_rater.config.settings import Settings
from stream_rater.serve.routes import OPERATIONS
from tests.builders.serves import ServeThread, serves_here
from tests.integration.processes import done
from tests.integration.serving import ask
from tests.waits import wait_until

FILE = ROOT / "stream_rater" / "serve" / "examples.json"
KEPT = "/v1/ladders/duel/seasons/0/leaderboard"
LADDER, ANN = {"ladder": "duel"}, {"ladder": "duel", "player": "ann"}
SIDES = [{"players": ["ann"]}, {"players": ["bob"]}]


def a_duel(number: int, best: str, other: str, **more: str) -> dict[str, Any]:
    standings = [{"player": best, "rank": 1}, {"player": other, "rank": 2}]
    at = f"2026-11-{number:02}T20:15:05Z"
    return {"round_id": f"r-{number}", "completed_at": at, "standings": standings, **more}


PLAYED = [a_duel(i, *("bob", "ann") if i % 3 == 0 else ("ann", "bob")) for i in range(1, 7)]
SENT = a_duel(7, "ann", "bob")
BATCH = [a_duel(8, "bob", "ann", ladder="duel"), a_duel(9, "ann", "cy", ladder="duel")]
SEASON = {"event_type": "season-started", "season": 1, "keep": 1.0}
REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "send-round": (LADDER, {}, SENT),
    "round": (LADDER | {"round_id": "r-7"}, {"wait": 30}, None),
    "send-rounds": ({}, {}, BATCH),
    "correct": (LADDER, {}, {"event_type": "round-voided", "round_id": "r-9"}),
    "leaderboard": (LADDER, {"limit": 10}, None),
    "ladders": ({}, {}, None), "ladder": (LADDER, {}, None), "player": (ANN, {}, None),
    "lookup": (LADDER, {}, {"players": ["ann", "eve"]}), "history": (ANN, {"limit": 1}, None),
    "players": (LADDER, {"prefix": "a"}, None), "rounds": (LADDER, {"limit": 1}, None),
    "seasons": (LADDER, {}, None), "season": (LADDER | {"season": "0"}, {}, None),
    "predict": (LADDER, {}, {"sides": SIDES, "variance_factor": 1.0}),
    "balance": (LADDER, {}, {"players": ["ann", "bob", "cy"], "groups": [["ann", "cy"]]}),
    "what-if": (
        LADDER, {}, {"sides": SIDES, "ranks": [2, 1], "completed_at": "2026-11-20T20:15:05Z"}
    ),
    "explain": (ANN, {}, None),
}  # fmt: skip
"""By operation, in order: the parameters of the path and of the query, and the body."""


def answered(api: ServeThread, name: str) -> Any:
    operation = next(each for each in OPERATIONS if each.name == name)
    path, query, body = REQUESTS[name]
    answer = ask(api, f"{operation.path.format(**path)}?{urlencode(query)}", body)
    assert answer.status == operation.success, (name, answer)
    return answer.json


def examples(folder: Path) -> dict[str, Any]:
    """The examples by operation, of a process that keeps its file in this folder."""
    file, found = folder / "ratings.db", dict[str, Any]()
    with serves_here() as serve:
        api = serve(Settings(serve="127.0.0.1:0", serve_rate=0.0), data=file)
        rounds = "/v1/ladders/duel/rounds"
        for each in PLAYED:
            assert ask(api, rounds, each).status == 202
        assert ask(api, "/v1/ladders/duel/corrections", SEASON).status == 202
        for name, (path, query, body) in REQUESTS.items():
            if name == "leaderboard":
                at = found["correct"]["answer"]["offset"]
                fresh = f"/v1/ladders/duel/leaderboard?wait=30&min_offset={at}"
                assert ask(api, fresh).status == 200
            if name == "seasons":
                done(Settings(data=str(file)), "season-standings", "duel")
                wait_until(lambda: ask(api, KEPT).status == 200, "the season is kept")
            found[name] = {"parameters": path | query, "answer": answered(api, name)}
            if body is not None:
                found[name]["body"] = body
    # The season ends at the time of its correction, now.
    found["season"]["answer"]["ended_at"] = "2026-11-06T21:00:00Z"
    found["seasons"]["answer"]["seasons"][0]["ended_at"] = "2026-11-06T21:00:00Z"
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        made = msgspec.json.encode(examples(Path(folder)))
    FILE.write_bytes(msgspec.json.format(made, indent=1) + b"\n")
