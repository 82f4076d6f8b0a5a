"""The paper's experiments again, and Kerby's: how systems are tuned for them, what the tables say,
and volatility farming, for which Topcoder pays and Elo-MMR does not. `evidence --only games` as
typed: results are kept as they come, found again, and bounded in time."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs

from stream_rater.config.files import read_rating
from stream_rater.config.ladders import Ladder, any_ladder
from stream_rater.evaluation.accuracy import average, averages
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import own_run, scores_of
from stream_rater.evaluation.spaces import SPACES, WIDE, configuration, start
from stream_rater.evaluation.tuned_systems import OwnSystem
from stream_rater.evaluation.tuning import without_defaults
from stream_rater.operations.input_file import RoundsFile
from stream_rater.rating.parameters import Climbing, Elo, PlackettLuce, from_builtins
from stream_rater.rating.systems.elo_mmr import GOOD_SIGMA, GOOD_WEIGHT
from stream_rater.rating.systems.kerby import KERBYS, UNIT
from stream_rater.replay.pool import Pool
from tests import tables
from tests.benchmarks.lab import evidence, figures, games, peers
from tests.benchmarks.lab.evidence import FARMED, HARVEST, HONEST, last
from tests.benchmarks.lab.game import Game, Kind, games_of, in_blocks, season
from tests.benchmarks.lab.games import Bounds, Saved, Unfinished, digest_of
from tests.benchmarks.lab.kerby import METHODS, seasons
from tests.benchmarks.lab.peers import LEFT_OUT
from tests.benchmarks.lab.report import load
from tests.benchmarks.measure import Skipped
from tests.benchmarks.offline import shared
from tests.builders.cases import cases
from tests.builders.commands import as_file, done, run
from tests.rounds import Reader, as_json, event, ranked
from tests.tables import kendall_tau
from tests.unit.test_season import sessions


def test_a_short_first_part_tunes_nothing_to_an_end_of_its_range() -> None:
    """As games are tuned: parameters leave their first guess only as far as the rounds say. Those
    that fit best are at an end here, and lose a point of order on the other rounds. Where nobody
    has played five rounds in the first part, as in the paper's synth-large, all rounds count."""
    for kind in (Kind(40, 40, 40), Kind(600, 50, 600)):
        data = evidence.DataSet("short", list(in_blocks(season(kind, 1))))
        found, first = evidence.tuned(data, "codeforces", 60), evidence.first_guess("codeforces")
        assert found.at_ends == () and found.config != first, kind
        by_first_guess, tuned = (
            averages(evaluate(data.sessions, each).scored(evidence.TRAIN))["pair_inversion"]
            for each in (first, found.config)
        )
        assert by_first_guess is not None and tuned is not None
        assert tuned > by_first_guess - 0.2, kind


def test_the_table_of_accuracy() -> None:
    """What ended at an end of its range is said beside the figures that it made. The figures of the
    paper stand beside seasons as large as its own, in their own column, a dash where there is
    none."""
    data = evidence.DataSet("mine", list(season(Kind(9, 12, 3), 1)))
    effort = replace(evidence.QUICK, trials=1)
    entries = evidence.accuracy(data, ["elo-mmr", "bar"], effort, None, lambda _: None)
    ended = [entries[0], replace(entries[1], at_ends=("beta", "sigma_drift"))]
    lines = figures.accuracy(ended, beside_paper=False)
    (line,) = (each for each in lines if each.startswith("| mine | bar |"))
    assert line.startswith("| mine | bar | beta, sigma_drift |")
    (other,) = (each for each in lines if each.startswith("| mine | elo-mmr |"))
    assert other.startswith("| mine | elo-mmr | – |")
    large = evidence.DataSet("synth-large", data.sessions)
    entries = evidence.accuracy(large, ["elo-mmr", "bar"], effort, None, lambda _: None)
    printed = [line for line in figures.accuracy(entries, beside_paper=True) if line[:2] == "| "]
    columns = [line.rsplit("|", 2)[1] for line in printed]
    assert columns == [" paper ", " --- ", " 84.0 / 11.1 ", " – "]


def test_evidence_compares_all_systems_on_the_same_outcomes() -> None:
    """Draws are outcomes for all, whether or not a system has a draw margin."""
    lines = (
        as_json(*ranked([1, 1 if i % 3 else 2], [f"p{i % 4}", f"p{4 + i % 5}"]), round_id=f"r{i}")
        for i in range(60)
    )
    data = evidence.DataSet("mine", sessions(*lines)[0])
    effort = replace(evidence.QUICK, trials=5)
    for systems in (["trueskill"], ["trueskill", "elo-mmr"]):
        entries = evidence.accuracy(data, systems, effort, None, lambda _: None)
        assert len({each.of for each in entries}) == 1
        assert (entries[0].of.drawn > 0, entries[0].of.drawn_left_out) == (True, 0)
        report = "\n".join(figures.accuracy(entries, beside_paper=False))
        assert "draws were left out" not in report


@pytest.mark.slow
def test_the_first_guess_is_good_everywhere() -> None:
    """On real games, teams, races, and small and large rounds: of a grid, that of Elo-MMR has the
    least greatest regret, which is what a game's log loss has over the least."""
    games: list[Game] = []
    for name, rounds, cut in (("cwl", None, ()), ("formula-one", None, ()),
                              ("map-rando", None, ()), ("codeforces", 40, (2, 5, 20))):  # fmt: skip
        try:
            path: Path = shared(name)
        except Skipped as why:
            pytest.skip(str(why))
        data, _ = load(path, RoundsFile(path), rounds)
        games += games_of(name, data.sessions, cut)

    def log_loss(game: Game, weight: float, sigma: float) -> float:
        limits = {"weight_limit": weight, "sigma_limit": sigma, "rho": 1.0}
        run = own_run(game.sessions, configuration("elo-mmr", limits))
        found = average(scores_of(run.after(game.boundary)), "log_loss")
        assert found is not None
        return found

    regret = dict.fromkeys(product((0.05, 0.1, 0.2, 0.4), (50.0, 80.0, 120.0)), 0.0)
    for game in games:
        losses = {point: log_loss(game, *point) for point in regret}
        least = min(losses.values())
        for point, loss in losses.items():
            regret[point] = max(regret[point], loss - least)
    assert min(regret, key=lambda point: regret[point]) == (GOOD_WEIGHT, GOOD_SIGMA)


# --- farming --------------------------------------------------------------------------------------


def test_last_of_all_who_finished() -> None:
    """Behind everyone with a rank, before those without; the others stay as they were."""
    for places, who, rows, after in (
        ([1, 2, 3], 0, [1, 2, 0], [2, 3, 4]), ([1, 1, 3], 1, [0, 2, 1], [1, 3, 4]),
        ([1, 2, 3], 2, [0, 1, 2], [1, 2, 4]), ([1, 2, 0], 0, [1, 0, 2], [2, 3, 0]),
        ([1, 2, 0], 2, [0, 1, 2], [1, 2, 3]),
    ):  # fmt: skip
        (session,), _ = sessions(as_json(*ranked(places)))
        changed = last(session, who)
        assert (changed.rows.tolist(), changed.rounds[0].place.tolist()) == (rows, after), places


def test_farming_pays_at_topcoder_and_never_by_elo_mmr() -> None:
    """Figure 2, on a made-up season: hundreds of points there, and never a point here."""
    data, row = evidence.made_up_farm()
    careers = evidence.farm(data, row, evidence.MADE_UP_THRESHOLD)
    assert set(careers) == set(evidence.FARMING_SYSTEMS)
    for career in careers.values():
        assert len(career.honest) == len(career.farmed) == HONEST + FARMED + HARVEST
        assert career.honest[:HONEST] == career.farmed[:HONEST]
    assert careers["topcoder"].gain >= 300.0
    ours = careers["elo-mmr"]
    ahead = np.array(ours.farmed) - np.array(ours.honest)
    assert ahead.max() == 0.0 and ours.gain < 0.0
    penalty = -ahead[-HARVEST:]  # decays once honest play resumes
    assert penalty[-1] < 0.5 * penalty.max()


# --- Kerby's tables, and what `tune` searches of his systems --------------------------------------

COUNT, FIRST = 60, 35
KERBY = sorted(system for system in SPACES if len(WIDE[system]) > len(SPACES[system]))


def made_up_races() -> list[dict[str, Any]]:
    """Made-up races, in some of which the last two do not finish."""
    return [
        event(
            *ranked([1, 2, 2, 4, *((0, 0) if number % 3 else (5, 6))],
                    [f"p{row}" for row in session.rows.tolist()]),
            round_id=f"r{number}",
        )
        for number, session in enumerate(season(Kind(20, COUNT, 6), 4))
    ]  # fmt: skip


def test_the_command_makes_kerbys_tables(tmp_path: Path) -> None:
    """Each method as pairs counted one by one have it, in each season by itself; beside the note's
    figures. TrueSkill is in order of mu less two sigmas where the note has that. What is kept
    between rounds has single precision, which may turn one of some 300 pairs around."""
    as_file(tmp_path / "mine.jsonl", made_up_races())
    done("evidence", tmp_path, "--out", tmp_path, "--only", "kerby", "--season", FIRST)
    text = (tmp_path / "report.md").read_text()
    assert "| method | note, season 1 | note, later | mine, season 1 | mine, later |" in text
    assert "mine, season 1: 35 rounds" in text and "mine, later: 25 rounds" in text
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    report = {row[0]: row[1:] for row in rows if row[0] in METHODS}
    assert report.keys() == METHODS.keys()
    for name, method in METHODS.items():
        reader = Reader(any_ladder(method.config))
        read = [reader.read(msgspec.json.encode(each)) for each in made_up_races()]
        due = [kendall_tau(method.config, part) for part in (read[:FIRST], read[FIRST:])]
        note_season_1, _, *found = report[name]
        assert [float(each) for each in found] == pytest.approx(due, abs=1 / 300), name
        assert note_season_1 == ("–" if method.season_1 is None else f"{method.season_1:.4f}")


def test_the_whole_file_is_a_season_unless_one_is_given() -> None:
    """And no round is lost between two."""
    data = evidence.DataSet("mine", list(season(Kind(20, COUNT, 6), 4)))
    ((name, whole),) = seasons(data, None)
    assert name == "mine" and sum(len(each.rounds) for each in whole) == COUNT
    (_, first), (_, later) = seasons(data, FIRST)
    numbers = [n for part in (first, later) for each in part for n in each.numbers.tolist()]
    assert sorted(numbers) == list(range(COUNT)) and len(first) == FIRST


@pytest.mark.slow
def test_kerbys_tables_on_his_rounds(shared: Path) -> None:
    """Each method has about the Kendall tau that the note gives: the lower, the better. TrueSkill
    less two sigmas is first, Thurstone the best plain one, averaged pairs are last. All adaptations
    gain: the anchor most; less the table of learning rates; the floor, too, but not Thurstone.

    The data lacks the season's boundary, and has as strangers the deleted players that the note
    leaves out. In Plackett-Luce the note's program takes each one's chance of being worse than all
    who finished as independent, where we take P(max < min), the note's own formula; so farthest are
    its figures, by 0.0018, and in the note it is just before the sum of pairs, here just behind.
    (TrueSkill's mu, 0.0054 off, by default 0.0052, is of another variant, which treats ties else.)
    """
    first, _ = tables.seasons(shared)
    tau = {name: kendall_tau(method.config, first) for name, method in METHODS.items()}
    in_note = {name: each.season_1 for name, each in METHODS.items() if each.season_1}
    del in_note["trueskill mu"], in_note["trueskill default mu"]
    assert {name: tau[name] for name in in_note} == pytest.approx(in_note, abs=0.002)
    plain = ("pairwise sum", "pairwise average", "plackett-luce", "thurstone")
    assert min(tau, key=lambda name: tau[name]) == "trueskill mu - 2 sigma"
    assert min(plain, key=lambda name: tau[name]) == "thurstone"
    assert max(plain, key=lambda name: tau[name]) == "pairwise average"
    order = ("plackett-luce", "thurstone", "pairwise sum", "pairwise average")
    anchored = [f"{name}, anchor" for name in order]
    assert sorted(anchored, key=lambda name: tau[name]) == anchored
    assert all(tau[name] - tau[f"{name}, anchor"] > 0.01 for name in plain)
    for name in ("plackett-luce", "thurstone"):
        assert tau[f"{name}, anchor"] - tau[f"{name}, anchor, rates"] > 0.001
    floored = "plackett-luce, anchor, rates, floor"
    assert tau["plackett-luce, anchor, rates"] - tau[floored] > 0.001


def test_the_search_begins_without_adaptations() -> None:
    """His systems have all his adaptations: the first rating, the anchor, the rates and the floor.
    The search begins as the system is by itself; and every point is a configuration that reads as
    itself."""
    assert KERBY == ["elo", "pairwise-elo", "plackett-luce", "thurstone"]
    names = {"learning_rate", "initial_mu", "anchor", "rate_above", "rate_far_above", "floor"}
    assert all(WIDE[system] == SPACES[system] for system in SPACES.keys() - set(KERBY))
    for system in KERBY:
        space = WIDE[system]
        assert {each.name for each in space} == names
        plain = configuration(system, start(SPACES[system]))
        assert configuration(system, start(space)) == plain
        random = np.random.default_rng(3)
        for at in (*([x] * len(space) for x in (0.0, 0.37, 1.0)), *random.random((20, len(space)))):
            values = {d.name: d.at(float(x)) for d, x in zip(space, at, strict=True)}
            found: Any = configuration(system, values)
            assert from_builtins(without_defaults(found)) == found
            assert isinstance(found, Climbing)
            assert found.floor is None or found.floor <= found.initial_mu


def test_the_notes_best_is_among_what_is_searched() -> None:
    """Plackett-Luce with anchor, rates and floor, in points of chess: 1500 for the note's 0."""
    note: Any = METHODS["plackett-luce, anchor, rates, floor"].config
    rates = [rate for _, rate in note.rates]
    values = {
        "learning_rate": rates[0] * UNIT, "initial_mu": 1500.0 + note.initial_mu * UNIT,
        "anchor": 1500.0 + note.anchor * UNIT, "floor": 1500.0,
        "rate_above": rates[1] / rates[0], "rate_far_above": rates[2] / rates[0],
    }  # fmt: skip
    assert all(each.low <= values[each.name] <= each.high for each in KERBYS)
    found: Any = configuration("plackett-luce", values)
    assert found.scale == PlackettLuce.tuned["scale"] == pytest.approx(400 / math.log(10))
    rounds = list(season(Kind(20, COUNT, 6), 4))
    one, other = (averages(evaluate(rounds, each).scores)["kendall_tau"] for each in (note, found))
    assert one == pytest.approx(other, abs=2e-3)


def test_tune_finds_an_anchor(tmp_path: Path) -> None:
    """Where newcomers are worse than all others, an anchor pays; a learning rate alone cannot say
    it. The file that is written has it, and `evaluate` reads it."""
    random, rounds = np.random.default_rng(2), list[dict[str, Any]]()
    skill = {f"p{i}": 2.0 for i in range(12)}
    for number in range(240):
        names = [f"p{i}" for i in random.choice(12, 4, replace=False)] + [f"new{number}"]
        played = {name: skill.get(name, 0.0) + random.normal(0.0, 0.7) for name in names}
        order = sorted(names, key=lambda name: -played[name])
        rounds.append(event(*ranked([1, 2, 3, 4, 5], order), round_id=f"r{number}"))
    file, out = as_file(tmp_path / "rounds.jsonl", rounds), tmp_path / "found.json"
    done("tune", file, "--system", "plackett-luce", "--train", "0.6", "--trials", "120",
         "--metric", "log_loss", "--workers", "1", "--out", out)  # fmt: skip
    found = read_rating(out)
    assert isinstance(found, PlackettLuce)
    assert found.anchor is not None or found.floor is not None or found.initial_mu != 1500.0


def test_the_laboratory_knows_who_is_fixed(tmp_path: Path) -> None:
    """`evaluate` predicts as the service rates: a bot's rating stays; others' move against it."""
    config = Elo(learning_rate=40.0, scale=174.0, fixed=("bot",))
    standings = [ranked([1, 2], ["ann", "bot"]), ranked([1, 2], ["bob", "ann"])] * 4
    events = [event(*each, round_id=f"r{i}") for i, each in enumerate(standings)]
    words = ["evaluate", as_file(tmp_path / "rounds.jsonl", events), "--train", "0"]
    for name, each in (("bot", config), ("free", structs.replace(config, fixed=()))):
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(each))
        words += ["--config", tmp_path / f"{name}.json"]
    rows = msgspec.json.decode(done(*words, "--format", "json"))
    losses = [row["log_loss"] for row in rows]
    reader, pool = Reader(any_ladder(config)), Pool(Ladder(rating=config))
    due = []
    for offset, reported in enumerate(events):
        standing = reader.read(msgspec.json.encode(reported))
        ratings = {name: float(header["mu"]) for name, header in pool}
        won, lost = (ratings.get(name, 1500.0) for name in standing.players)
        z = (won - lost) / (174.0 * math.pi / math.sqrt(3.0))  # of the logistic's variance
        due.append(-math.log(0.5 * math.erfc(-z / math.sqrt(2.0))))
        pool.rate(standing, offset)
    assert losses[0] == pytest.approx(sum(due) / len(due), rel=1e-6) != losses[1]


# --- games as typed -------------------------------------------------------------------------------

QUICK = ("--only", "games", "--quick", "--workers", "1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a made-up season, and one of teams."""
    folder = tmp_path / "data"
    folder.mkdir()
    singles, teams = [], []
    for i, session in enumerate(season(Kind(20, 40, 6), 4)):
        names = [f"p{row}" for row in session.rows.tolist()]
        singles.append(event(*ranked(list(range(1, 7)), names), round_id=f"r{i}"))
        sides = ({"team": names[:2], "rank": 1}, {"team": names[4:], "rank": 2})
        teams.append(event(*sides, round_id=f"r{i}"))
    as_file(folder / "singles.jsonl", singles)
    as_file(folder / "teams.jsonl", teams)
    return folder


@pytest.fixture
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where none is installed."""
    monkeypatch.setattr(peers, "missing", lambda: list(peers.SPACES))


def played(*words: object) -> str:
    return done("evidence", *words, *QUICK)


def read_results(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((out / "games.json").read_bytes())
    return found


@pytest.mark.usefixtures("no_peers")
def test_games_are_written_as_markdown_and_json(data: Path, tmp_path: Path) -> None:
    """Each file is played as it is, and cut where it has no teams. One line names the missing
    peers."""
    out = tmp_path / "out"
    played(data, "--out", out, "--cut", "3,2", "--teams", "1", "--system", "glicko",
             "--system", "elo-mmr")  # fmt: skip
    report, found = (out / "report.md").read_text(), read_results(out)
    names = ["singles", "singles, 2", "singles, 3", "singles, 1 against 1", "teams"]
    assert [each["game"] for each in found["games"]] == names
    for name in names:
        for system in ("glicko", "elo-mmr"):
            assert len([line for line in report.splitlines() if line.startswith(f"| {name} | ")
                        and f"{system}" in line.split("|")[2]]) == 2 + 1  # fmt: skip
    (line,) = [line for line in report.splitlines() if "Not installed" in line]
    assert all(peer in line for peer in peers.SPACES)
    assert line.removeprefix("- ") in found["notes"]
    assert "## Accuracy" not in report and "## Games" in report
    assert "- teams: 4 rounds to tune on, which say little." in report


@pytest.mark.usefixtures("no_peers")
def test_a_second_run_goes_on(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tuned again where the results are kept, and the figures are the same."""
    out = tmp_path / "out"
    played(data, "--out", out, "--system", "glicko")
    first = read_results(out)
    monkeypatch.setattr(games, "fit", lambda *_: pytest.fail("it is done again"))
    played(data, "--out", out, "--system", "glicko")
    assert read_results(out) == first and len(list((out / "saved").iterdir())) == 2


@pytest.mark.usefixtures("no_peers")
def test_ours_is_marked(data: Path, tmp_path: Path) -> None:
    """Among all systems worth comparing, in the table and in the JSON."""
    out = tmp_path / "out"
    played("--data", data, "--out", out)
    report = (out / "report.md").read_text()
    for each in read_results(out)["games"]:
        wanted = set(SPACES) - LEFT_OUT | {"trueskill+newcomers"}
        assert {system["system"] for system in each["systems"]} == wanted
        assert f"| {each['game']} | **{each['ours']}** | tuned |" in report
        assert report.count(f"| {each['game']} | **") == 2


def test_the_folder_is_named_once(data: Path) -> None:
    """Neither twice nor not at all; sizes are whole numbers of two and more."""
    for words in ((), (data, "--data", data), (data, "--cut", "1"), (data, "--cut", "two")):
        assert run("evidence", *words, *QUICK).exit_code == 2


# --- results that are kept ------------------------------------------------------------------------

SEASON = list(season(Kind(players=20, rounds=40, per_round=6), 3))
BOUNDS = Bounds(10)


def game(rounds: list[Session] = SEASON) -> Game:
    (found,) = games_of("made up", rounds)
    return found


def test_a_system_that_takes_too_long_is_named_and_left_out(tmp_path: Path) -> None:
    """The others are compared all the same. It is tried again with more time alone."""
    systems, kept = [OwnSystem("glicko"), OwnSystem("bar")], Saved(tmp_path)
    ((none,), (found,)) = (
        games.compare([game()], systems, Bounds(10, seconds), None, lambda _: None, kept)
        for seconds in (0.0, 600.0)
    )
    assert [each.system for each in none.not_finished] == ["glicko", "bar"]
    assert none.systems == [] and none.ours is None
    said = "made up: glicko did not finish within 0 s, and is left out of all comparisons."
    assert any(said in line for line in figures.page([none], []))
    assert found.not_finished == [] and len(found.systems) == 2


def changed(**rounds: Any) -> Game:
    """The game with another last round."""
    last = SEASON[-1]
    return game([*SEASON[:-1], replace(last, rows=rounds.get("rows", last.rows))])


@cases(
    "other, bounds, system",
    [  # other rounds, boundary, trials, seconds, system
        (changed(rows=SEASON[-1].rows[::-1].copy()), BOUNDS, OwnSystem("glicko")),
        (replace(game(), boundary=5), BOUNDS, OwnSystem("glicko")),
        (game(), Bounds(11), OwnSystem("glicko")),
        (game(), Bounds(10, 9.0), OwnSystem("glicko")),
        (game(), BOUNDS, OwnSystem("bar")),
    ],
)
def test_whatever_decides_a_result_is_in_its_key(
    tmp_path: Path, other: Game, bounds: Bounds, system: OwnSystem
) -> None:
    """One of them is another, and the result is not used."""
    kept = Saved(tmp_path)
    outcome = Unfinished("glicko", 1.0)
    kept.store(game(), OwnSystem("glicko"), BOUNDS, outcome)
    assert kept.load(game(), OwnSystem("glicko"), BOUNDS) == outcome
    assert kept.load(other, system, bounds) is None


def test_other_code_has_other_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other kernels, and other modules of the evaluation."""
    kept = Saved(tmp_path)
    kept.store(game(), OwnSystem("glicko"), BOUNDS, Unfinished("glicko", 1.0))
    for name, value in (("KERNEL_VERSION", 10**6), ("_code", lambda: "another")):
        with monkeypatch.context() as patched:
            patched.setattr(games, name, value)
            assert kept.load(game(), OwnSystem("glicko"), BOUNDS) is None
    assert kept.load(game(), OwnSystem("glicko"), BOUNDS) is not None


def test_every_column_of_the_rounds_is_in_the_digest() -> None:
    """One number in one of them is another."""
    digests, base = {digest_of(game())}, SEASON[-1]
    names = [
        name for name in base.rounds.__struct_fields__
        if isinstance(getattr(base.rounds, name), np.ndarray) and getattr(base.rounds, name).size
    ]  # fmt: skip
    for name in names:
        column = getattr(base.rounds, name).copy()
        column[-1] = column[-1] == 0
        rounds = type(base.rounds)(*[
            column if each == name else getattr(base.rounds, each)
            for each in base.rounds.__struct_fields__
        ])  # fmt: skip
        digests.add(digest_of(game([*SEASON[:-1], replace(base, rounds=rounds)])))
    assert len(digests) == 1 + len(names) > 4
