"""What benchmarks measure and print is what they say; that anything is fast is not asserted."""

import gzip
import importlib
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from local.tools import ROOT
from stream_rater.columns.sharding import shards_of
from stream_rater.evaluation.bootstrap import VERDICTS, Difference
from stream_rater.evaluation.calibrating import Calibration
from stream_rater.evaluation.fits import DEFAULT, LOG_LOSS
from stream_rater.evaluation.measures import FIELDS, OF_PAIRS
from stream_rater.evaluation.spaces import SPACES
from stream_rater.evaluation.tuned_systems import OwnSystem
from stream_rater.rating import stages as systems
from stream_rater.rating.model import PERFORMANCE
from tests.benchmarks import ablation, stage1
from tests.benchmarks import games as bench
from tests.benchmarks.document.rows import Origin, load, made
from tests.benchmarks.document.tables import BY_SECTION, verdicts
from tests.benchmarks.document.writing import ROWS
from tests.benchmarks.lab import figures, games, peers
from tests.benchmarks.lab.forward import ORDER_OF_ALL, Fitted, Gain, Variant
from tests.benchmarks.lab.game import Kind, games_of, season
from tests.benchmarks.lab.games import REFERENCE, Verdict
from tests.benchmarks.measure import result
from tests.benchmarks.stream import steps
from tests.benchmarks.stream.__main__ import enough, labelled
from tests.benchmarks.stream.against import beside_null, compared
from tests.benchmarks.stream.ground import Published, Servers, copied
from tests.benchmarks.stream.latency import Seen, feed, found
from tests.benchmarks.stream.latency import report as report_of_crowd
from tests.benchmarks.stream.null import (
    Sample,
    in_groups,
    members_of,
    plain_round_from_json,
    plain_teams_from_json,
    regrouped,
)
from tests.benchmarks.stream.operating import Sample as Resident
from tests.benchmarks.stream.operating import growth
from tests.benchmarks.stream.plan import Plan
from tests.benchmarks.stream.rounds import WORKLOADS, up_to
from tests.benchmarks.stream.rounds import made as made_round
from tests.benchmarks.stream.throughput import Run

THEN = Origin("2026-11-25 09:12", "abcdef1", "make bench-games", "one machine")


def test_brute_force_sees_an_error() -> None:
    """The error reported is that of the worst performance."""
    for size in (2, 60):
        for gaussian in (False, True):
            wave = stage1.wave_of_size(size, 4, seed=1)
            config = stage1.GAUSSIAN if gaussian else stage1.LOGISTIC
            found = systems.estimate(config, wave)[:, PERFORMANCE].copy()
            assert stage1.error_points(wave, size, found, gaussian=gaussian) < 1e-6
            found[size + 1] += 0.25
            error = stage1.error_points(wave, size, found, gaussian=gaussian)
            assert error == pytest.approx(0.25, rel=0, abs=1e-6)  # the other error's bound


def test_a_part_that_is_switched_off_has_no_effect() -> None:
    """Its parameters are fixed and none of them is tuned; the others are."""
    for fixed in ablation.PARAMETERS.values():
        system, whole = ablation.Without(REFERENCE, fixed=fixed), OwnSystem(REFERENCE)
        names = {each.name for each in system.space}
        assert names == {each.name for each in whole.space} - {name for name, _ in fixed}
        config = system.config({each.name: each.at(0.7) for each in system.space})
        assert [getattr(config, name) for name, _ in fixed] == [value for _, value in fixed]


def test_a_gain_is_what_would_be_lost() -> None:
    """Positive where the rounds are predicted worse without the part."""
    (game,) = games_of("made up", list(season(Kind(players=30, rounds=120, per_round=6), 3)))
    on = np.zeros((50, OF_PAIRS))
    on[:, FIELDS.index("scored")] = 2.0
    off = on.copy()
    on[:, FIELDS.index("log_loss")], off[:, FIELDS.index("log_loss")] = 0.5, 0.6
    (row,) = ablation._row(game, "a part", on, off)
    assert (row.name, row.value) == ("ablation/made up/a-part", 0.1)


# --- `make bench-games` ---------------------------------------------------------------------------


def fitted(system: str, log_loss: float) -> Fitted:
    variants = [
        Variant(
            tuned_for=aim, config={}, variance_factor=1.0, last=Calibration(), first_log_loss=0.6,
            order=70.0, order_all=None, log_loss=log_loss, brier=0.2, calibration_error=0.01,
            us_update=2.0, failed_rounds=7 * (system == "bar" and aim == LOG_LOSS),
        )
        for aim in (DEFAULT, LOG_LOSS)
    ]  # fmt: skip
    gain = Gain(default=0.7, calibrated=0.69, tuned=0.68, validated=0.67, followed=log_loss)
    return Fitted(system=system, variants=variants, gain=gain)


def report(path: Path) -> Path:
    """A game with two of ours and two peers: the chosen one is worse in log loss than one."""
    worse, better, same = ((0.02, 0.01, 0.03), (1, 0.5, 1.5), (1, -1, 3))
    found = [
        Verdict(ours=ours, peer=peer, measure=measure, difference=Difference(*gap), verdict=said)
        for ours in ("bar", "elo-mmr")
        for peer, measure, gap, said in (
            ("trueskill-package", LOG_LOSS, worse, "worse"),
            ("trueskill-package", ORDER_OF_ALL, better, "better"),
            ("plain-elo", LOG_LOSS, same, "no difference"),
        )
    ]
    fits = [fitted("elo-mmr", 0.65), fitted("bar", 0.64), fitted("trueskill-package", 0.63)]
    game = games.Result(
        game="codeforces, 5 against 5", rounds=90, scored_rounds=81, sides=2.0, systems=fits,
        ours="elo-mmr", least_at_first="bar", verdicts=found,
    )  # fmt: skip
    path.write_bytes(figures.as_json([game], ["6 configurations were tried."]))
    return path


def test_a_game_is_a_row_of_each_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named by its file and its cut. A line a game, with the differences to each peer, worse ones
    in bold; all systems, ours first, the chosen one in bold."""
    assert bench.main([str(report(tmp_path / "games.json"))]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    (row,) = made([msgspec.json.decode(line)], THEN)
    assert row.name == "games/codeforces/5-against-5"
    assert (row.figures["value"], row.figures["unit"]) == (0.65, "nats")
    assert row.figures["note"] == "ours: elo-mmr; 6 configurations were tried."
    assert row.figures["ratio"]["bar log_loss"] == 0.64
    assert row.figures["ratio"]["trueskill-package log_loss log_loss low"] == 0.01
    (verdict,) = verdicts(row)
    assert verdict.figures["game"] == "`codeforces`, 5 against 5"
    assert (verdict.figures["part"], verdict.figures["counts"]) == ("chose", "+1 =1 -1")
    assert verdict.figures["best"] == "trueskill-package, by 0.0200"
    assert (verdict.figures["log_loss"], verdict.figures["calibration_error"]) == (0.65, 0.01)
    gaps = {key: text for key, text in verdict.figures.items() if "[" in str(text)}
    assert gaps == {
        "log_loss trueskill-package": "**+0.02 [+0.01, +0.03]**",
        "order trueskill-package": "+1 [+0.5, +1.5]",
        "log_loss plain-elo": "*+1 [-1, +3]*",
    }
    lines = BY_SECTION["games-systems"].markdown([row]).splitlines()
    first, second, third = (each for each in lines if "| `codef" in each)
    assert "| **elo-mmr** |" in first and "| bar |" in second and "| +1 =1 -1 | 7 |" in second
    shown = "| trueskill-package | 0.6300 | 0.2000 | 0.0100 | 70.00 | – | – | 0.6000 | 2 | 0.7000"
    assert shown in third


def test_the_plans_of_games() -> None:
    """The shared files either chose or report; other files did neither. No game is in two plans,
    since the row of the second one would replace that of the first. Every peer has its column in
    the table of each measure."""
    roles = {file: games.role_of(str(file)) for plan in bench.PLANS for file in plan.files}
    assert roles == {**dict.fromkeys(["cwl", "map-rando", "codeforces"], games.CHOSE),
                     **dict.fromkeys(["formula-one", "clubs", "frc"], games.REPORTED)}  # fmt: skip
    assert games.role_of("tennis") == games.ANOTHER
    whole = [file for plan in bench.PLANS if plan.whole for file in plan.files]
    cut = [(file, size) for plan in bench.PLANS for file in plan.files for size in plan.cut]
    assert len(set(whole)) == len(whole) and len(set(cut)) == len(cut)
    assert not any(plan.whole and plan.cut for plan in bench.PLANS)
    for section, measure in (("games", "log_loss"), ("games-order", "order")):
        cells = [each.cell for each in BY_SECTION[section].columns]
        assert [cell for cell in cells if cell.startswith(f"{measure} ")] == [
            f"{measure} {peer}" for peer in peers.SPACES
        ]


def test_what_of_a_file_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lines are skipped where they had a part in choosing."""
    path, kept = tmp_path / "a.jsonl.gz", list[bytes]()
    path.write_bytes(gzip.compress(b"0\n1\n2\n3\n4\n"))

    def played(data: Path, out: Path, *_: Any, **__: Any) -> None:
        kept.append(gzip.decompress((data / "a.jsonl.gz").read_bytes()))
        out.mkdir()
        report(out / "games.json")

    monkeypatch.setattr(bench, "evidence_report", played)
    bench.play(bench.Plan((path,), skip=3))
    assert kept == [b"3\n4\n"]


def test_the_reference_is_the_one_that_peers_beat_least_often() -> None:
    """By the games in the documents in which all of ours were played."""
    worse: Counter[str] = Counter()
    known = {each.replace(" ", "_") for each in VERDICTS}
    for row in load(ROOT / ROWS):
        if row.name.startswith("games/"):
            found: Counter[str] = Counter()
            for key, count in row.figures["ratio"].items():
                system, _, what = key.partition(" ")
                if system in SPACES and what in known:
                    found[system] += int(count) if what == "worse" else 0
            if len(found) > 1:
                worse.update(found)
    assert len(worse) > 1
    assert min(worse, key=lambda system: worse[system]) == REFERENCE


# --- `make bench-stream`: what it plays, and how it counts; the service is not run here ---

DRAWN = ("lobby5", "duel", "team5v5", "squads", "royale100", "field10000", "veterans",
         "hot-ladder", "dense")  # fmt: skip


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
    rounds = [made_round(f"r{i}", "x", ["a", "b"]) for i in range(4)]
    assert [len(up_to(n, rounds)) for n in (1, 4, 5, 8, 9)] == [2, 2, 3, 4, 4]


def test_lost_and_doubled_are_reported() -> None:
    """An event too few and one too many do not make up for each other."""
    due = Counter({b"x:a": 2, b"x:b": 1})
    assert Published(Counter(due), 0.0, Sample(0, [])).wrong(due) == ""
    published = Published(Counter({b"x:a": 1, b"x:b": 2}), 0.0, Sample(0, []))
    assert published.wrong(due) == "1 events lost, 1 doubled"


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
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def poll(self, _: float) -> None:
        """Nothing to report."""

    def produce(self, _: str, value: bytes, __: bytes) -> None:
        self.now_s += 2.0
        event = plain_round_from_json(value)
        for _entry in event.standings:
            self.seen.round_ids.append(event.round_id)
            self.seen.at_s.append(self.now_s)


def test_a_starved_feeder_is_not_forgiven() -> None:
    """A round that is sent late was due by the schedule: the delay is latency. Nor does the feeder
    make the load smaller than was asked for."""
    starved: Any = Starved()
    rounds = [made_round(f"r{i}", "x", ["a", "b"]) for i in range(5)]
    due_s, end_s = feed(starved, "", rounds, 2.0, lambda: None, starved)
    phase = found(due_s, end_s, starved.seen)
    assert phase.latency_s.tolist() == [3.0, 3.0, 4.0, 4.0, 5.0, 5.0, 6.0, 6.0]
    assert (phase.rate, phase.lag) == (2.0, 6)


def test_a_feeder_waits_until_a_round_is_due() -> None:
    """So many updates a second: a large round leaves time after it."""
    sizes = [1, 4, 2]
    rounds = [made_round(f"r{i}", "x", [f"p{k}" for k in range(n)]) for i, n in enumerate(sizes)]
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
    crowd = made_round("crowd-0", "crowd", ["a", "b"])
    due = {"before": 8.0, "across": 9.5, "beside": 12.0, "after": 31.0}
    names = ["before", "across", "crowd-0", "beside", "crowd-0", "after"]
    seen = Seen(names, [8.5, 11.0, 11.5, 14.0, 30.0, 31.5])
    cost = report_of_crowd(crowd, 10.0, due, seen)
    assert cost.seconds == 20.0
    assert (cost.quiet.latency_s.tolist(), cost.beside.latency_s.tolist()) == ([0.5], [2.0])


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


def test_growth() -> None:
    """Bytes an update in the second half; what came before does not count."""
    steady = [Resident(i, 1000 + 3 * i) for i in range(5, 10)]
    assert growth([Resident(i, 7) for i in range(5)] + steady) == pytest.approx(3.0)
    assert growth([Resident(1, 5)]) == 0.0


def test_workers_and_servers() -> None:
    """There are twice as many partitions and shards as processes of the largest role, where the
    service's own number is smaller. A partition has three copies at most, one of which may be
    missing; with a single one none may."""
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
    (other,) = labelled(iter(rows), Servers(3, 4).label)
    assert other.name == "on/3-brokers-4-redis/stream/lobby5/8"


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


def test_a_step_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
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
