"""What the benchmark of the service plays, and how it counts; the service is not run here."""

import importlib
import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_rater.columns.sharding import shards_of
from tests.benchmarks.document.tables import BY_SECTION
from tests.benchmarks.measure import result
from tests.benchmarks.stream import steps
from tests.benchmarks.stream.__main__ import enough, labelled, main
from tests.benchmarks.stream.against import beside_null, compared, load_of, rival_of
from tests.benchmarks.stream.crew import names_of
from tests.benchmarks.stream.crowd import report
from tests.benchmarks.stream.ground import Published, Servers, copied
from tests.benchmarks.stream.latency import Seen, feed, found
from tests.benchmarks.stream.null import Sample, in_groups, members_of, regrouped
from tests.benchmarks.stream.plain import plain_round_from_json, plain_teams_from_json
from tests.benchmarks.stream.plan import Plan
from tests.benchmarks.stream.rounds import WORKLOADS, made, up_to
from tests.benchmarks.stream.soaking import Sample as Resident
from tests.benchmarks.stream.soaking import growth
from tests.benchmarks.stream.throughput import Run

DRAWN = (
    "lobby5", "duel", "team5v5", "squads", "royale100", "field10000", "veterans", "hot-ladder",
    "dense",
)  # fmt: skip


def first(name: str, count: int, seed: int = 1) -> list[Any]:
    return list(itertools.islice(WORKLOADS[name].rounds(seed), count))


def test_rounds_are_as_asked() -> None:
    """So many players of one ladder, each once, best first; a player has one ladder. The same for
    the same seed, others for another."""
    for name in DRAWN:
        workload, ladder_of = WORKLOADS[name], dict[str, str]()
        assert first(name, 3) == first(name, 3) != first(name, 3, seed=2), name
        for each in itertools.islice(workload.rounds(), 2 * workload.ladders):
            decode = plain_round_from_json if workload.team == 1 else plain_teams_from_json
            event: Any = decode(each.value)
            assert (event.round_id, event.ladder) == (each.round_id, each.ladder)
            members = [members_of(entry) for entry in event.standings]
            assert [player for some in members for player in some] == each.players
            assert {len(some) for some in members} == {workload.team}
            assert [entry.rank for entry in event.standings] == list(range(1, len(members) + 1))
            assert len(set(each.players)) == workload.size, name
            assert {len(player) for player in each.players} == {10}
            ladders = {ladder_of.setdefault(player, each.ladder) for player in each.players}
            assert ladders == {each.ladder}
        assert len(set(ladder_of.values())) == workload.ladders
    rounds = [made(f"r{i}", "x", ["a", "b"]) for i in range(4)]
    assert [len(up_to(n, rounds)) for n in (1, 4, 5, 8, 9)] == [2, 2, 3, 4, 4]


def test_lost_and_doubled_are_reported() -> None:
    """An event too few and one too many do not make up for each other."""
    due = Counter({b"x:a": 2, b"x:b": 1})
    assert Published(Counter(due), 0.0, Sample(0, [])).wrong(due) == ""
    published = Published(Counter({b"x:a": 1, b"x:b": 2}), 0.0, Sample(0, []))
    assert published.wrong(due) == "1 events lost, 1 doubled"


# --- latency --------------------------------------------------------------------------------------


def test_latencies() -> None:
    """Of the rounds after the first fifth of the time; what came after the end was behind."""
    due = {f"r{i}": 10.0 + i for i in range(10)}
    seen = Seen([f"r{i}" for i in range(10)], [10.0 + i + 0.1 * (i + 1) for i in range(10)])
    phase = found(due, 20.0, seen)
    assert np.allclose(np.sort(phase.latency_s), np.arange(0.3, 1.05, 0.1), rtol=0, atol=1e-9)
    assert (phase.rate, phase.lag) == (1.0, 0)
    assert phase.quantile_ms(0.5) == pytest.approx(600.0)
    assert phase.quantile_ms(0.99) == phase.quantile_ms(1.0) == pytest.approx(1000.0)
    late = found(due, 19.5, seen)
    assert late.lag == 1 and late.lag_ms == pytest.approx(950.0)


class Starved:
    """A feeder's clock and producer: to hand a round over takes two seconds, and it is rated at
    once."""

    def __init__(self) -> None:
        self.now_s = 10.0
        self.seen = Seen([], [])

    def time(self) -> float:
        """Now."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Pass the time."""
        self.now_s += seconds

    def poll(self, _: float) -> None:
        """Nothing to report."""

    def produce(self, _: str, value: bytes, __: bytes) -> None:
        """Take a round, and see the events of its players."""
        self.now_s += 2.0
        event = plain_round_from_json(value)
        for _entry in event.standings:
            self.seen.round_ids.append(event.round_id)
            self.seen.at_s.append(self.now_s)


def test_a_starved_feeder_is_not_forgiven() -> None:
    """A round that is sent late was due by the schedule: the delay is latency. Nor does the feeder
    make the load smaller than was asked for."""
    starved: Any = Starved()
    rounds = [made(f"r{i}", "x", ["a", "b"]) for i in range(5)]
    due_s, end_s = feed(starved, "", rounds, 2.0, lambda: None, starved)
    phase = found(due_s, end_s, starved.seen)
    assert phase.latency_s.tolist() == [3.0, 3.0, 4.0, 4.0, 5.0, 5.0, 6.0, 6.0]
    assert (phase.rate, phase.lag) == (2.0, 6)


def test_a_feeder_waits_until_a_round_is_due() -> None:
    """So many updates a second: a large round leaves time after it."""
    sizes = [1, 4, 2]
    rounds = [made(f"r{i}", "x", [f"p{k}" for k in range(n)]) for i, n in enumerate(sizes)]
    starved: Any = Starved()
    begun: list[float] = []
    due_s, end_s = feed(starved, "", rounds, 0.1, lambda: begun.append(starved.now_s), starved)
    assert due_s == {"r0": 10.0, "r1": 20.0, "r2": 60.0} and end_s == 80.0
    assert begun == pytest.approx([20.0]) and starved.now_s == pytest.approx(80.0, abs=0.01)
    assert found(due_s, end_s, starved.seen).latency_s == pytest.approx([2.0] * 2)


def test_a_crowd_is_all_of_a_ladder() -> None:
    """Everybody once, in another order each time; nobody plays in the lobbies beside it."""
    few = replace(WORKLOADS["million"], size=1000)
    one, two = itertools.islice(few.rounds(), 2)
    assert sorted(one.players) == sorted(two.players) == [f"p{i:09d}" for i in range(1000)]
    assert one.players != two.players and one.round_id != two.round_id
    lobbies = first(few.beside, 64)
    assert one.ladder not in {each.ladder for each in lobbies}
    assert one.round_id not in {each.round_id for each in lobbies}


def test_what_a_crowd_costs_others() -> None:
    """A crowd takes the time from its sending to its last event. Lobbies that are due in this time
    are beside it. Lobbies that were finished before it are quiet. Those due later are
    neither."""
    crowd = made("crowd-0", "crowd", ["a", "b"])
    due = {"before": 8.0, "across": 9.5, "beside": 12.0, "after": 31.0}
    seen = Seen(
        ["before", "across", "crowd-0", "beside", "crowd-0", "after"],
        [8.5, 11.0, 11.5, 14.0, 30.0, 31.5],
    )
    found = report(crowd, 10.0, due, seen, 7, {})
    assert found.seconds == 20.0
    assert (found.quiet.latency_s.tolist(), found.beside.latency_s.tolist()) == ([0.5], [2.0])


# --- the null pipeline, and other rivals ----------------------------------------------------------


def test_the_null_pipeline_regroups_all() -> None:
    """Every player of every round once, in the part of its shard, with its place."""
    rounds = [plain_round_from_json(each.value) for each in first("lobby5", 50)]
    want = Counter((r.round_id, e.player, e.rank) for r in rounds for e in r.standings)
    got: Counter[tuple[str, str, int]] = Counter()
    for shard, part in regrouped(rounds, 8):
        assert set(shards_of(part.players, 8).tolist()) == {shard}
        rows = zip(part.index, part.players, part.place, strict=True)
        got.update((part.round_ids[i], player, place) for i, player, place in rows)
    assert got == want


def test_the_null_pipeline_cuts_as_asked() -> None:
    """All in order, so many players at a time on average: smaller groups follow a large one, until
    nothing follows; where nothing came, the group is empty."""
    message = object()
    sizes = [2, 2, 3, 14, 1, 3, 2, 4, 1, None, None, 4, 1, 4]
    came = [None if each is None else (each, message) for each in sizes]
    groups = in_groups(came, lambda size: size, 5)  # type: ignore[arg-type]
    found = [[size for size, _ in group] for group in groups]
    assert found == [[2, 2, 3], [14], [1], [3], [2], [4], [1], [], [4, 1]]


def test_ratios_are_of_turns() -> None:
    """A rival's figures are medians; its ratios are those of each turn, not of the medians."""

    def turns(*pairs: tuple[float, float]) -> list[dict[str, float]]:
        return [{"p50_ms": p50, "p99_ms": p99} for p50, p99 in pairs]

    first = turns((10.0, 100.0), (40.0, 200.0), (20.0, 600.0))
    ours = turns((5.0, 50.0), (10.0, 400.0), (40.0, 60.0))
    alone, beside = compared("x", first, first), compared("x", ours, first)
    assert (alone.value, alone.ratio) == (200.0, {"p50_ms": 20.0})
    assert (beside.value, beside.unit, beside.ratio["p50_ms"]) == (60.0, "ms, p99", 10.0)
    assert [beside.ratio[f"p50_{each}"] for each in ("least", "ratio", "most")] == [0.25, 0.5, 2.0]
    assert [beside.ratio[f"p99_{each}"] for each in ("least", "ratio", "most")] == [0.1, 0.5, 2.0]
    ours, null = turns((10.0, 50.0), (30.0, 60.0)) * 2, turns((5.0, 25.0), (10.0, 20.0)) * 2
    by_null = beside_null("x", ours, null)
    assert (by_null.value, by_null.unit, by_null.ratio["p50_times"]) == (2.5, "times", 2.5)
    assert (by_null.ratio["p99_ms"], by_null.ratio["null_p50_ms"]) == (55.0, 7.5)


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what there is, and the exit code is 2. A rival is a folder or settings."""
    assert rival_of("null").name == "null"
    assert rival_of("shards=4,partitions=2").settings == {"shards": "4", "partitions": "2"}
    assert (load_of("5000"), load_of("backlog")) == (5000.0, None)
    wrong = {
        "lobby": "no workload 'lobby'; there are: lobby5 duel team5v5 squads ",
        "--measure speed": "no measure 'speed'; there are: rate null latency recovery ",
        "--workers 1,0+1": "no number of workers '0+1'; like 2, or 1+1",
        "--against shards": "shards: neither a folder with stream_rater nor NAME=VALUE,NAME=VALUE",
        f"--against {tmp_path}": str(tmp_path),
        "--against shads=4": "",
        "--against shards=many": "",
        "--against shards=4 --loads 0": "no load '0'; like 5000, or backlog",
        "--against null --loads backlog": "null has no backlog: only latency is compared with it",
    }
    for words, said in wrong.items():
        assert main(words.split()) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"bench: {said}")


# --- what figures are of --------------------------------------------------------------------------


def test_growth() -> None:
    """Bytes an update in the second half; what came before does not count."""
    steady = [Resident(i, 1000 + 3 * i) for i in range(5, 10)]
    assert growth([Resident(i, 7) for i in range(5)] + steady) == pytest.approx(3.0)
    assert growth([Resident(1, 5)]) == 0.0


def test_workers_and_servers() -> None:
    """Workers of one role are named for it. There are twice as many partitions and shards as
    processes of the largest role, where the service's own number is smaller. A partition has three
    copies at most, one of which may be missing; with a single one none may."""
    assert names_of("2") == ["worker-0", "worker-1"]
    assert names_of("1+2") == ["estimator-0", "updater-0", "updater-1"]
    assert enough(["1", "1+1", "2", "4"]) == {}
    assert enough(["1", "8"]) == {"partitions": "16", "shards": "16"}
    assert enough(["1", "4+6"]) == {"partitions": "12", "shards": "12"}
    for brokers, copies, least in ((1, "1", "1"), (2, "2", "1"), (5, "3", "2")):
        properties = copied(Servers(brokers))
        assert properties["default.replication.factor"] == copies
        assert properties["min.insync.replicas"] == least
        assert properties["transaction.state.log.min.isr"] == least


def test_rows_of_a_cluster_have_its_label() -> None:
    """So they replace none of a Kafka and a Redis alone."""
    rows = [result("stream/lobby5/8", 1.0, "updates/s")]
    assert list(labelled(iter(rows), Servers().label)) == rows
    (found,) = labelled(iter(rows), Servers(3, 4).label)
    assert found.name == "on/3-brokers-4-redis/stream/lobby5/8"
    assert re.fullmatch(BY_SECTION["capacity"].names, found.name)
    assert not re.fullmatch(BY_SECTION["capacity"].names, f"{found.name}/null")


def test_how_a_run_compares_with_that_of_one_process() -> None:
    """By rate and by cost; not where one process was not measured."""

    def ran(seconds: float, used_us: float) -> Run:
        used = {"workers": used_us}
        return Run(1, 100, seconds, used, 0.0, 1, {}, 0.5, 4, Sample(0, []), None)

    one, four = ran(10.0, 2.0), ran(5.0, 3.0)
    plan = Plan(frozenset({"rate"}), ["1", "4"])
    assert dict(plan._beside(WORKLOADS["lobby5"], "4", four)) == {}
    plan.measured["lobby5", "1"] = one
    assert dict(plan._beside(WORKLOADS["lobby5"], "4", four)) == {"of_one": 2.0, "cost_of_one": 1.5}


def test_every_step_is_there() -> None:
    """A step that was renamed would be left out in silence."""
    for place in (each for places in steps.STEPS.values() for each in places):
        module, _, name = place.partition(":")
        found: Any = importlib.import_module(module)
        for each in name.split("."):
            found = getattr(found, each)
        assert callable(found), place


def test_a_step_has_its_own_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a step within it takes counts there; so does the time until a failure."""
    now_s = [0.0]
    monkeypatch.setattr(steps.time, "thread_time", lambda: now_s[0])

    def takes(seconds: float) -> None:
        now_s[0] += seconds

    def fails() -> None:
        takes(4.0)
        raise ValueError

    watch = steps.Watch()
    inner = watch.around("stage 2", fails)

    def outer() -> str:
        takes(1.0)
        with pytest.raises(ValueError):
            inner()
        takes(2.0)
        return "done"

    assert watch.around("apply", outer)() == "done"
    assert (watch.spent_s["apply"], watch.spent_s["stage 2"]) == (3.0, 4.0)
    watch.write(tmp_path / "steps.json")
    assert json.loads((tmp_path / "steps.json").read_text()) == watch.spent_s
