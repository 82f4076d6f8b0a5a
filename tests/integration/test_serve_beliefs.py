"""What `serve` answers from the workers' whole beliefs, beside a real worker: what a result would
change, and why a rating is what it is."""

from typing import Any

import pytest

from tests import real
from tests.integration.processes import wait_until
from tests.integration.serving import Serve, ask
from tests.integration.test_serve import (
    AT,
    in_memory,
    others,
    published,
    rated,
    remove_ann,
    serve,
)
from tests.integration.test_service import Start

__all__ = ["serve"]

RESULTS: list[dict[str, Any]] = [
    {"ranks": [1, 2, 3]},
    {"ranks": [2, None, 1], "weight": 1.5, "performance_ceiling": 1600.0},
    {"ranks": [1, 1, 2], "completed_at": "2021-02-03T04:05:06Z"},
]


def test_what_if_and_explain(
    settings: real.SettingsFactory, worker_process: Start, serve: Serve
) -> None:
    """What a result would change is what `Ladder.what_if` says, bit for bit, with teams, shares and
    newcomers. An explanation is of the belief in the store: pulls cancel, and the performances of
    single rounds are those that were published. Nothing is written."""
    at = settings()
    worker = rated(at, worker_process, 60)
    ladder, api = in_memory(60), serve(at)
    before = others(at)
    sides, shares = [["ann", "newcomer"], ["b\u00f6b"], ["c/d", "e:{1}"]], [[1.0, 0.5], None, None]
    given = [
        {"players": p} | ({"shares": s} if s else {}) for p, s in zip(sides, shares, strict=True)
    ]
    for result in RESULTS:
        found = ask(api, f"{AT}/what-if", {"sides": given, **result})
        wanted = ladder.what_if(sides, shares=shares, **result).to_dicts()
        assert found.status == 200, found
        assert found.json["changes"] == [
            {name: each[name] for name in found.json["changes"][0]} for each in wanted
        ]
    nothing = {"sides": given, "ranks": [None, None, None]}
    assert ask(api, f"{AT}/what-if", nothing).json == {"changes": []}

    events = [each for each in published(at) if each.player == "ann"]
    answer = ask(api, f"{AT}/players/ann/explain").json
    newest = max(events, key=lambda each: each.offset)
    assert [answer[name] for name in ("mu", "sigma", "rating", "rounds", "offset")] == [
        getattr(newest, name) for name in ("mu", "sigma", "rating", "rounds", "offset")
    ]
    factors = [answer["gaussian"], *answer["performances"]]
    assert sum(each["weight"] for each in factors) == pytest.approx(1.0)
    assert sum(each["pull"] for each in factors) == pytest.approx(0.0, abs=1e-2)
    assert max(abs(each["pull"]) for each in factors) > 1.0
    by_round = {each.round_id: each.performance for each in events}
    named = [each for each in answer["performances"] if each["rounds"]]
    assert newest.round_id in [one for each in named for one in each["rounds"]]
    for each in named:
        for one in each["rounds"]:
            assert each["at"] == pytest.approx(by_round[one], abs=1 / 16)
    stranger = ask(api, f"{AT}/players/newcomer/explain")
    assert (stranger.status, stranger.json["code"]) == (404, "unknown-player")
    worker.terminate()
    assert worker.wait() == 0
    assert others(at) == before


def test_what_if_by_the_corrections_of_the_ladder(
    settings: real.SettingsFactory, worker_process: Start, serve: Serve
) -> None:
    """Soon after a player is removed, a result with them is refused. The place says who it is."""
    at = settings()
    rated(at, worker_process, 20)
    api = serve(at)
    asked = {"sides": [{"players": ["b\u00f6b"]}, {"players": ["x", "ann"]}], "ranks": [1, 2]}
    assert ask(api, f"{AT}/what-if", asked).status == 200
    remove_ann(at)
    wait_until(lambda: ask(api, f"{AT}/what-if", asked).status == 422, "it is recorded")
    refused = ask(api, f"{AT}/what-if", asked).json
    assert (refused["code"], refused["place"]) == ("invalid", "body.sides[1].players[1]")
    assert "removed" in refused["detail"]
    assert ask(api, f"{AT}/players/ann/explain").json["code"] == "unknown-player"
