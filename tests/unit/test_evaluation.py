"""Evaluation: what is predicted, from which beliefs, and which rounds count."""

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation.accuracy import average, averages
from stream_rater.evaluation.comparison import compare
from stream_rater.evaluation.evaluation import Contender, displayed, evaluate, trained
from stream_rater.evaluation.measures import FIELDS, OF_PAIRS, Evaluation
from stream_rater.evaluation.proposal import propose
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.shared_scores import WEIGHTS, alike, counted, draws_in
from stream_rater.evaluation.sides import calibrated, own_run, scores_of
from stream_rater.rating import parameters
from stream_rater.rating.parameters import Elo, EloMMR, Glicko, RatingConfig, Topcoder, TrueSkill
from tests.benchmarks.lab.game import Kind, in_blocks, season, singly, split
from tests.builders.cases import cases
from tests.builders.commands import as_file, done
from tests.rounds import as_json, day, event, ranked
from tests.unit.test_season import sessions

MMR = EloMMR(weight_limit=0.2, sigma_limit=80.0)
SEASON = list(season(Kind(players=40, rounds=60, per_round=8), 5))


def duels(*winners: str) -> list[Session]:
    """Rounds of ann against bob."""
    names = {"ann": ["ann", "bob"], "bob": ["bob", "ann"]}
    found, _ = sessions(
        *(as_json(*ranked([1, 2], names[w]), round_id=str(i)) for i, w in enumerate(winners))
    )
    return found


def column(scores: object, name: str) -> list[float]:
    return [row[FIELDS.index(name)] for row in scores.tolist()]  # type: ignore[attr-defined]


def test_a_round_is_predicted_by_what_was_known_before_it() -> None:
    """Nothing at first; then that the winner wins again, right or wrong."""
    scores = evaluate(duels("ann", "ann", "bob"), MMR).scores
    assert column(scores, "kendall_tau") == [0.5, 0.0, 1.0]


def test_ladders_are_kept_apart() -> None:
    lines = [as_json(*ranked([1, 2]), round_id=str(i), ladder=name) for i, name in enumerate("aab")]
    found, _ = sessions(*lines)
    assert column(evaluate(found, MMR).scores, "kendall_tau") == [0.5, 0.0, 0.5]


def test_uninformative_rounds_count_but_are_not_scored() -> None:
    """They count, so that the first part is the same for every system."""
    lines = (as_json(*ranked(places), round_id=str(places)) for places in ([0, 0], [1, 1], [1, 2]))
    outcome = evaluate(sessions(*lines)[0], structs.replace(MMR, skip_all_tied=True))
    assert column(outcome.scores, "entries") == [0.0, 0.0, 2.0]
    assert outcome.players.tolist() == [2.0, 2.0, 2.0]


def test_the_first_part_builds_experience_only() -> None:
    """floor(train R), whatever floats make of it."""
    due = {(30, 0.1): 3, (1071, 0.1): 107, (9, 0.1): 0, (7, 0.0): 0}
    assert {each: trained(*each) for each in due} == due
    outcome = evaluate(SEASON, MMR)
    assert len(outcome.scored(0.1)) == 54
    assert np.array_equal(outcome.scored(0.1), outcome.scores[6:])


@cases("config", [MMR, Topcoder()])
def test_rounds_are_rated_as_one_after_the_other(config: RatingConfig) -> None:
    """In blocks, in the order of the season; by stages side by side; in parts of a split round."""
    blocks = list(in_blocks(SEASON))
    assert len(blocks) == 1 and 1 < len(blocks[0].waves) - 1 <= len(SEASON)
    alone = evaluate(SEASON, config)
    for together in (evaluate(blocks, config), evaluate(iter(SEASON), config, threads=True)):
        assert np.array_equal(alone.scores, together.scores)
        assert np.array_equal(alone.players, together.players)
    rng = np.random.default_rng(2)
    dealt = [split(session, 3, rng) for session in SEASON]
    assert np.array_equal(evaluate(dealt, config).scores, evaluate(singly(dealt), config).scores)


def test_winners_are_left_out_where_nobody_asks() -> None:
    """The other scores are the same."""
    whole, pairs = (evaluate(SEASON, MMR, most_sides=most) for most in (8, 0))
    assert np.array_equal(pairs.scores[:, :OF_PAIRS], whole.scores[:, :OF_PAIRS])
    assert whole.scores[:, OF_PAIRS].all() and not pairs.scores[:, OF_PAIRS:].any()
    assert whole.calibration(0.1) and pairs.calibration(0.1) == []


def test_better_parameters_predict_better() -> None:
    """A ladder that hardly moves calls every pair a coin toss; one that moves knows more."""
    stuck = EloMMR(weight_limit=1e-6, sigma_limit=1.0, initial_sigma=1.0)
    found = [averages(evaluate(SEASON, c).scored(0.2)) for c in (MMR, Topcoder(), stuck)]
    losses = [each["log_loss"] for each in found]
    assert losses[2] == pytest.approx(math.log(2.0), abs=0.01)
    assert losses[0] is not None and losses[0] < 0.6
    assert losses[1] is not None and losses[1] < 0.6


# --- the order by what is shown ------------------------------------------------------------------


def test_the_order_is_that_of_mu_or_of_what_is_shown() -> None:
    """Ann won once and leads by mu; bob leads by mu less sigmas. Probabilities are the same."""
    names = [[f"p{i % 5}", "bob"][:: (-1) ** i] for i in range(60)]
    lines = [as_json(*ranked([1, 2], each), round_id=f"b{i}") for i, each in enumerate(names)]
    lines.append(as_json(*ranked([1, 2], ["ann", "bob"]), round_id="a"))
    lines.append(as_json(*ranked([1, 2], ["bob", "ann"]), round_id="last"))
    found = sessions(*lines)[0]
    config = Glicko(beta=100.0, sigma_drift=5.0, display=parameters.MinusSigma(minus_sigma=2.0))
    by_mu, by_display = (evaluate(found, config, by_display=shown) for shown in (False, True))
    assert column(by_mu.scores, "kendall_tau")[-1] == 1.0
    assert column(by_display.scores, "kendall_tau")[-1] == 0.0
    for name in ("log_loss", "brier", "winner_log_loss", "winner_brier"):
        assert column(by_mu.scores, name) == column(by_display.scores, name)


def test_a_display_of_mu_is_mu() -> None:
    """Of teams and of singles."""
    for config in (Glicko(beta=300.0, sigma_drift=35.0, display="mu"), MMR):
        shown = structs.replace(config, display="mu")
        assert np.array_equal(
            evaluate(SEASON, shown, by_display=True).scores, evaluate(SEASON, config).scores
        )


def test_a_team_is_shown_by_the_sum_of_its_members() -> None:
    """Newcomers count nothing, however many they are; shares count as they do in mu."""
    two = [{"team": ["ann", "bob"], "shares": [1.0, 0.5], "rank": 1}, {"team": ["cy"], "rank": 2}]
    lines = [as_json(*two, round_id=str(i)) for i in range(2)]
    config = Glicko(beta=300.0, sigma_drift=35.0, display=parameters.MinusSigma(minus_sigma=3.0))
    waves = [wave for _, _, wave in Contender(config).rate(sessions(*lines)[0]) if wave is not None]
    first, second = displayed(config, waves[0]).reshape(2, 2)
    assert first.tolist() == pytest.approx([1500.0 - 3.0 * 350.0] * 2)
    mu, sigma = waves[0].mu[3:], waves[0].sigma[3:]
    gains = mu - 1500.0 - 3.0 * (sigma - 350.0)
    due = [1.2 * (gains[0] + 0.5 * gains[1]) / 1.5, 1.2 * gains[2]]  # 1.2 is the total of both
    assert (second - first).tolist() == pytest.approx(due)


# --- what is compared is alike: the same rounds and outcomes for all configurations ---------------

TRUESKILL = TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=60.0)


def drawn_season(count: int = 120) -> list[list[dict[str, Any]]]:
    """Standings of duels, of which a fifth are draws, between six players."""
    random = np.random.default_rng(8)
    skill = np.linspace(-200.0, 200.0, 6)
    found = []
    for _ in range(count):
        a, b = random.choice(6, 2, replace=False).tolist()
        gap = skill[a] - skill[b] + random.normal(0.0, 250.0)
        names = [f"p{a}", f"p{b}"] if gap >= 0.0 else [f"p{b}", f"p{a}"]
        found.append(ranked([1, 1 if abs(gap) < 110.0 else 2], names))
    return found


DUELS = drawn_season()
DRAWS = sum(each[0]["rank"] == each[1]["rank"] for each in DUELS)


def rounds(*standings: list[dict[str, Any]]) -> list[Session]:
    lines = (
        as_json(*each, round_id=f"r{i}", completed_at=day(i)) for i, each in enumerate(standings)
    )
    return sessions(*lines)[0]


def compared(standings: list[list[dict[str, Any]]], *configs: RatingConfig) -> list[Evaluation]:
    named = [(str(i), config) for i, config in enumerate(configs)]
    return compare("file", rounds(*standings), named, 0.0)


OF_WINS = ("log_loss", "brier", "winner_log_loss", "winner_brier")


@cases("config", [MMR, TRUESKILL, structs.replace(MMR, draw_width=150.0)])
def test_draws_are_an_outcome_for_all_systems(config: RatingConfig) -> None:
    """For one that has no width of its own, too. The table says how many were scored."""
    assert 20 < DRAWS < 60
    for row in compared(DUELS, MMR, config):
        assert (row.rounds_scored, row.pairs_scored) == (len(DUELS), len(DUELS))
        assert (row.draws_scored, row.draws_left_out) == (DRAWS, 0)
        assert row.winners_scored == len(DUELS)
        assert row.log_loss == pytest.approx(row.winner_log_loss, rel=1e-9)  # one link
        assert row.log_loss is not None
        assert row.log_loss < math.log(3.0), "better than a guess"
        assert sum(each.sides for each in row.calibration) == 2 * len(DUELS)


def test_the_width_of_a_system_without_one_is_learned_from_earlier_rounds() -> None:
    """It ends near the one that suits the whole season best. Later rounds have no part in it."""
    (row,) = compared(DUELS * 5, MMR)
    by_width = [
        compared(DUELS * 5, structs.replace(MMR, draw_width=float(width)))[0].log_loss
        for width in np.linspace(20.0, 400.0, 39)
    ]
    assert row.log_loss is not None
    assert row.log_loss == pytest.approx(min(each for each in by_width if each), abs=0.01)
    scores = evaluate(rounds(*DUELS), MMR).scores
    other = evaluate(rounds(*DUELS[:80], *(ranked([1, 1], ["p0", "p1"]) for _ in range(40))), MMR)
    assert scores[:80].tolist() == other.scores[:80].tolist()


def test_without_draws_there_are_two_outcomes() -> None:
    """For a system with a margin, too. A single draw makes three outcomes of all."""
    decided = [each for each in DUELS if each[0]["rank"] != each[1]["rank"]]
    alone = compared(decided, TRUESKILL)[0]
    (_, beside) = compared(decided, MMR, TRUESKILL)
    for row in (alone, beside):
        assert (row.draws_scored, row.draws_left_out) == (0, 0)
        two = evaluate(rounds(*decided), TRUESKILL, draws=False)
        assert row.log_loss == average(two.scores, "log_loss")
    drawn = ranked([1, 1], ["p0", "p1"])
    assert compared([*decided, drawn], TRUESKILL)[0].log_loss != alone.log_loss


def test_before_the_first_draw_there_are_two_outcomes() -> None:
    """In a file of several blocks of rounds. It does not depend on the system."""
    decided = [each for each in DUELS if each[0]["rank"] != each[1]["rank"]]
    blocks = [*singly(rounds(*decided[:20], *DUELS[:50]))]
    first = next(i for i, each in enumerate(blocks) if draws_in(each.rounds))
    assert first >= 20
    for config in (MMR, TRUESKILL):
        outcome = evaluate(blocks, config)
        two = evaluate(blocks, config, draws=False)
        assert outcome.draws
        assert outcome.scores[:first].tolist() == two.scores[:first].tolist()
        assert outcome.scores[first, FIELDS.index("pairs_scored")] == 1.0
        assert two.scores[first, FIELDS.index("pairs_scored")] == 0.0


def test_a_draw_is_a_shared_place_of_two_who_finished() -> None:
    """In a round, not at the border of two rounds."""
    cases = (
        ([[1, 2], [1, 2]], False), ([[1, 0, 0]], False), ([[0, 0]], False), ([[1, 2, 2]], True),
        ([[1, 2, 3], [2, 2]], True), ([[1, 1]], True),
    )  # fmt: skip
    for places, due in cases:
        (session,) = rounds(*(ranked(each) for each in places))
        assert draws_in(session.rounds) == due, places


@cases("order", [1, -1])
def test_the_difference_is_that_of_the_games_that_both_have(order: int) -> None:
    """Whichever comes first: the mean of the differences over these games, not more."""
    first, second = (MMR, structs.replace(TRUESKILL, skip_all_tied=True))[::order]
    (_, row) = compared(DUELS, first, second)
    found = [evaluate(rounds(*DUELS), each).scores for each in (second, first)]
    common = (np.stack(found)[:, :, FIELDS.index("decided")] > 0.0).all(axis=0)
    assert row.differences is not None
    for measure in OF_WINS:
        gaps = (found[0] - found[1])[common, FIELDS.index(measure)]
        gap = row.differences[measure]
        assert gap is not None and gap.mean == pytest.approx(gaps.mean())


def test_who_did_not_finish_drew_with_nobody() -> None:
    """By whatever rule they are rated: such pairs are left out for all, and counted."""
    places = [[1, 1, 0, 0, 0], [1, 2, 3, 0, 0], [0, 0, 0, 0, 0]]
    standings = [ranked(each) for each in places]
    for config in (TRUESKILL, Elo(learning_rate=30.0), MMR):
        (row,) = compared(standings, config)
        assert row.unfinished_left_out == 3 + 1 + 10, config
        assert row.draws_scored + row.draws_left_out == 1
    rows = compared(standings, Elo(learning_rate=30.0), structs.replace(MMR, dnf="not-compared"))
    assert rows[0].draws_scored == 1
    assert len({(row.pairs_scored, row.rounds_scored, row.draws_left_out) for row in rows}) == 1


def test_a_round_that_one_does_not_rate_is_scored_for_neither() -> None:
    """With `skip_all_tied` a round where all tie has no prediction, so it counts for neither."""
    skipping = structs.replace(TRUESKILL, skip_all_tied=True)
    for first, second in ((TRUESKILL, skipping), (skipping, TRUESKILL)):
        rows = compared(DUELS, first, second)
        for row in rows:
            assert (row.rounds_scored, row.draws_left_out) == (120 - DRAWS, DRAWS)
            assert row.winners_scored == 120 - DRAWS
    (alone,) = compared(DUELS, skipping)
    assert (alone.rounds_scored, alone.draws_left_out) == (120 - DRAWS, DRAWS)


def test_who_is_experienced_does_not_depend_on_what_is_rated() -> None:
    """Rounds in which all tie are rounds before, rated or not."""
    three = [ranked([1, 1, 1], list("abc"))] * 5 + [ranked([1, 2, 3], list("abc"))] * 2
    usual, skipping = (
        evaluate(rounds(*three), structs.replace(MMR, skip_all_tied=skip))
        for skip in (False, True)
    )  # fmt: skip
    for outcome in (usual, skipping):
        assert outcome.scores[:, FIELDS.index("experienced")].tolist() == [0.0] * 5 + [3.0] * 2


def test_scores_are_alike_in_every_column() -> None:
    """Where one has no weight none has; what differs in weight is no comparison."""
    random = np.random.default_rng(1)
    one: Floats = np.zeros((50, len(FIELDS)))
    for name in WEIGHTS:
        one[:, FIELDS.index(name)] = 4.0
    other = one.copy()
    columns = [FIELDS.index(name) for name in WEIGHTS]
    gone = random.random((2, 50, len(columns))) < 0.3
    for each, out in zip((one, other), gone, strict=True):
        each[:, columns] = np.where(out, 0.0, each[:, columns])
    found = alike([one, other])
    for each in found:
        assert (each[:, columns] > 0.0).tolist() == (~gone.any(axis=0)).tolist()
    other[:, columns] *= 2.0
    with pytest.raises(AssertionError, match="unlike rounds"):
        alike([one, other])


def test_games_score_draws_for_everybody() -> None:
    """They use the width of each round's calibration. The plain model has none, and omits draws."""
    for way, draws in ((calibrated, True), (lambda run: run, False)):
        of = [
            counted(scores_of(way(own_run(rounds(*DUELS), each))), draws=draws)
            for each in (MMR, TRUESKILL)
        ]
        assert of[0] == of[1]
        assert (of[0].drawn, of[0].drawn_left_out) == ((DRAWS, 0) if draws else (0, DRAWS))


def test_a_ladder_is_offered_another_system_on_the_same_games() -> None:
    """TrueSkill's draws are no reason to keep it or to leave it."""
    found = propose(TRUESKILL, "elo-mmr", rounds(*DUELS), train=0.5, trials=6)
    base = evaluate(rounds(*DUELS), TRUESKILL).scores[60:]
    assert found.compared[0].now == average(base, "log_loss")
    assert found.of is not None and found.of.drawn_left_out == 0 < found.of.drawn
    assert f"{found.of.drawn} draws among them" in found.of.sentence()


def test_the_table_says_what_was_left_out(tmp_path: Path) -> None:
    """The table says what the JSON says: a system that rates no draws omits them for both."""
    file = as_file(tmp_path / "draws.jsonl", (
        event(*each, round_id=f"r{i}", completed_at=day(i)) for i, each in enumerate(DUELS)
    ))  # fmt: skip
    words = ["evaluate", file, "--train", "0"]
    for name, config in (("mmr", MMR), ("ts", structs.replace(TRUESKILL, skip_all_tied=True))):
        path = tmp_path / f"{name}.json"
        path.write_bytes(msgspec.json.encode(config))
        words += ["--config", path]
    line = next(each for each in done(*words).splitlines() if "draws left out" in each)
    assert line.split()[5:8:2] == [str(DRAWS)] * 2, line
    for row in json.loads(done(*words, "--format", "json")):
        assert row["draws_left_out"] == DRAWS
        assert row["rounds_scored"] == row["pairs_scored"] == 120 - DRAWS
