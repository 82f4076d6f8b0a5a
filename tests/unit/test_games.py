"""Games: how seasons are cut, tuned on their first part alone, chosen and compared."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import tuning
from stream_rater.evaluation.accuracy import average
from stream_rater.evaluation.bootstrap import Difference
from stream_rater.evaluation.calibrating import Calibration
from stream_rater.evaluation.fits import DEFAULT, LOG_LOSS, Fit
from stream_rater.evaluation.fits import ORDER as INVERSION
from stream_rater.evaluation.measures import FIELDS, OF_PAIRS
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run
from stream_rater.evaluation.tuned_systems import OwnSystem
from stream_rater.evaluation.tuning import UNDEFINED
from stream_rater.rating.systems.dimension import Dimension
from stream_rater.runtime.trials import trials_on
from tests.benchmarks.lab import figures, forward, games
from tests.benchmarks.lab.forward import (
    ORDER,
    ORDER_OF_ALL,
    PARTS,
    Candidate,
    Fitted,
    Gain,
    Scored,
    Variant,
    distinct,
    fit,
    followed,
    parts_of,
)
from tests.benchmarks.lab.game import Game, Kind, deal_teams, games_of, season
from tests.builders.cases import cases
from tests.rounds import as_json, ranked
from tests.unit.test_season import sessions

SEASON = list(season(Kind(players=30, rounds=60, per_round=12), 3))
MMR = OwnSystem("elo-mmr")


def game(rounds: list[Session] = SEASON) -> Game:
    (found,) = games_of("made up", rounds)
    return found


# --- games ----------------------------------------------------------------------------------------


def test_a_season_is_cut_into_small_rounds_and_into_teams() -> None:
    """As it is first; sizes that it has no two rounds for are left out. The parts of a round stay
    together, on the side of the boundary where the round is. Rounds of teams cannot be cut."""
    found = list(games_of("made up", SEASON, (2, 5, 7), 3))
    assert [each.name for each in found] == ["made up", "made up, 2", "made up, 5",
                                             "made up, 3 against 3"]  # fmt: skip
    assert [set(each.sizes()) for each in found] == [{12}, {2}, {2, 5}, {2}]
    assert {each.boundary for each in found} == {6}
    members = {int(m) for each in found[3].sessions for m in each.rounds.members}
    assert members == {3}
    for each in found:
        assert {int(n) for session in each.first for n in session.numbers} == set(range(6))
    lines = [
        as_json({"team": ["a", "b"], "rank": 1}, {"team": ["c", "d"], "rank": 2}, round_id=str(i))
        for i in range(20)
    ]
    assert len(list(games_of("teams", sessions(*lines)[0], (2,), 1))) == 1


def test_the_team_with_the_better_places_wins() -> None:
    """By the sum of its members' places; ties share theirs, those who did not finish among them."""
    names = list("abcdefgh")
    standings = ranked([1, 2, 2, 4, 5, 6], names[:6])
    standings += [{"player": names[6], "dnf": True}, {"player": names[7], "dnf": True}]
    (whole,), _ = sessions(as_json(*standings))
    ranks = dict(zip(whole.rows.tolist(), [1.0, 2.5, 2.5, 4.0, 5.0, 6.0, 7.5, 7.5], strict=True))
    seen = set()
    for seed in range(40):
        dealt = deal_teams(whole, 2, np.random.default_rng(seed))
        assert dealt.rounds.entries.tolist() == [2, 2]
        for rows, place in zip(dealt.rows.reshape(2, 4).tolist(),
                               dealt.rounds.place.reshape(2, 2).tolist(), strict=True):  # fmt: skip
            among = sorted(ranks[row] for row in rows)
            own = [sum(_rank(ranks[row], among) for row in team) for team in (rows[:2], rows[2:])]
            assert (own[0] < own[1] and place == [1, 2]) or (own[0] == own[1] and place == [1, 1])
            seen.add(tuple(place))
    assert seen == {(1, 1), (1, 2)}


def test_a_player_who_is_dealt_keeps_the_share() -> None:
    """Whichever team is the better one."""
    (whole,), _ = sessions(as_json(*ranked(range(1, 9), "abcdefgh")))
    share = np.linspace(0.1, 0.8, 8)
    whole = replace(whole, rounds=structs.replace(whole.rounds, share=share))
    own = dict(zip(whole.rows.tolist(), share.tolist(), strict=True))
    for seed in range(10):
        dealt = deal_teams(whole, 2, np.random.default_rng(seed))
        assert [own[row] for row in dealt.rows.tolist()] == dealt.rounds.share.tolist()


def _rank(value: float, among: list[float]) -> float:
    return sum(each < value for each in among) + 0.5 * (among.count(value) + 1)


# --- tuning ---------------------------------------------------------------------------------------


def test_tuning_for_order_takes_all_sides_where_nobody_is_experienced() -> None:
    """Three rounds are too few for experience."""
    problem = Fit(MMR, SEASON[:3], INVERSION)
    assert problem.cost(problem.start()) < UNDEFINED
    assert Fit(MMR, [], INVERSION).cost(problem.start()) == UNDEFINED


# --- the choice and the verdicts ------------------------------------------------------------------


def scored(loss: Floats, order: Floats) -> Floats:
    """Scores of rounds of two."""
    found = np.zeros((len(loss), OF_PAIRS))
    for name in ("experienced", "entries", "scored"):
        found[:, FIELDS.index(name)] = 2.0
    found[:, FIELDS.index("log_loss")] = loss
    found[:, FIELDS.index("order")] = order
    found[:, FIELDS.index("order_all")] = order
    return found


def fitted(system: str, first_log_loss: float | None, log_loss: float = 0.6) -> Fitted:
    variant = Variant(
        tuned_for=LOG_LOSS, config={}, variance_factor=1.0, last=Calibration(),
        first_log_loss=first_log_loss,
        order=None, order_all=None, log_loss=log_loss, brier=None,
        calibration_error=None, us_update=1.0, failed_rounds=0,
    )  # fmt: skip
    by_default = structs.replace(variant, tuned_for=DEFAULT, first_log_loss=0.1)
    gain = Gain(default=None, calibrated=None, tuned=None, validated=None, followed=None)
    return Fitted(system=system, variants=[by_default, variant], gain=gain)


def test_ours_is_one_for_all_and_else_the_one_with_the_least_log_loss_at_first() -> None:
    """Whatever others do on the first part, whatever comes later, and however it was by default;
    the first of equal ones."""
    some = [fitted("glicko", 0.5), fitted(games.REFERENCE, 0.6), fitted("bar", 0.4)]
    assert games.choose(some) == games.choose(some[::-1]) == games.REFERENCE
    some = [fitted("glicko", 0.62, 0.9), fitted("bar", 0.63, 0.1), fitted("elo-r", None, 0.0)]
    assert games.choose(some) == games.choose(some[::-1]) == "glicko"
    assert games.least_at_first([*some, fitted(games.REFERENCE, 0.7)]) == "glicko"
    assert games.choose([fitted("bar", 0.6), fitted("glicko", 0.6)]) == "bar"
    assert games.choose([fitted("elo-r", None)]) is None
    assert games.choose([]) is None


def test_verdicts_have_the_right_sign() -> None:
    """Less log loss is better, and more pairs in the right order are; within the interval there
    is no difference."""
    random = np.random.default_rng(2)
    loss = random.normal(0.6, 0.1, 400)
    order = np.where(random.random(400) < 0.7, 100.0, 0.0)
    fewer = order * (random.random(400) < 0.8)
    more = np.maximum(order, 100.0 * (random.random(400) < 0.3))
    theirs = {
        "worse peer": of_both(loss + 0.1, fewer), "better peer": of_both(loss - 0.1, more),
        "equal peer": of_both(loss + np.tile([0.01, -0.01], 200), order),
    }  # fmt: skip
    found = list(games.verdicts({"glicko": of_both(loss, order)}, theirs))
    wanted = {"worse peer": "better", "better peer": "worse", "equal peer": "no difference"}
    assert [(v.peer, v.measure, v.verdict) for v in found] == [
        (peer, measure, said) for peer, said in wanted.items() for measure in games.COMPARED
    ]
    assert found[0].difference.mean == pytest.approx(-0.1)
    assert {v.ours for v in found} == {"glicko"}


def test_verdicts_are_counted() -> None:
    """Those of each system, and of the one with the least log loss on the first part."""
    gap = Difference(0.1, -1.0, 1.0)

    def said(ours: str, *verdicts: str) -> list[games.Verdict]:
        return [
            games.Verdict(ours=ours, peer="peer", measure=LOG_LOSS, difference=gap, verdict=each)
            for each in verdicts
        ]  # fmt: skip

    results = [
        games.Result(
            game=name, rounds=90, scored_rounds=81, sides=2.0, systems=[], ours="bar",
            least_at_first=least, verdicts=[*said("bar", "better", first), *said("glicko", "worse")]
        )
        for name, least, first in (("a", "bar", "no difference"), ("b", "glicko", "better"))
    ]  # fmt: skip
    assert figures.verdict_counts(results) == {
        "bar": {"better": 3, "no difference": 1}, "glicko": {"worse": 2},
        figures.AT_FIRST: {"better": 1, "no difference": 1, "worse": 1},
    }  # fmt: skip
    assert "| bar | 3 | 1 | 0 |" in figures.counts(results)


def of_both(loss: Floats, order: Floats) -> Scored:
    """The same by the first guess and tuned."""
    return dict.fromkeys((DEFAULT, LOG_LOSS), scored(loss, order))


def test_order_is_that_of_all_where_nobody_is_experienced() -> None:
    """As in the shortest files."""
    both = of_both(np.full(9, 0.6), np.full(9, 100.0))
    for each in both.values():
        each[:, FIELDS.index("experienced")] = 0.0
    found = [v.measure for v in games.verdicts({"bar": both}, {"peer": both})]
    assert found == [LOG_LOSS, ORDER_OF_ALL]


# --- all of it ------------------------------------------------------------------------------------


def test_results_do_not_depend_on_the_number_of_processes() -> None:
    """Each game's systems in order, the times apart."""

    def said(workers: int) -> list[tuple[Any, ...]]:
        systems = [OwnSystem("glicko"), OwnSystem("bar")]
        listed = list(games_of("made up", SEASON[:40], (5,)))
        with trials_on(workers) as executor:
            return [
                (each.game, each.ours, each.rounds, each.scored_rounds,
                 [[(v.config, v.log_loss, v.order) for v in s.variants]
                  for s in each.systems])
                for each in games.compare(
                    listed, systems, games.Bounds(6), executor, lambda _: None
                )
            ]  # fmt: skip

    alone = said(1)
    assert said(2) == alone
    assert [each[0] for each in alone] == ["made up", "made up, 5"]


# --- played forward: nothing that is scored has a say in what predicts it -------------------------

LONG = list(season(Kind(players=30, rounds=150, per_round=12), 3))
GLICKO = OwnSystem("glicko")


def turned(session: Session) -> Session:
    """The last come first."""
    return replace(session, rows=session.rows[::-1].copy())


def test_no_later_round_has_a_say() -> None:
    """Whatever happens from a round on, those before it are predicted alike: the first part's
    parameters, what was followed, and what was found on the way."""
    mine, scored = fit(GLICKO, game(LONG), 30)
    for until in (15, 60, 100):
        other = [*LONG[:until], *map(turned, LONG[until:])]
        theirs, others = fit(GLICKO, game(other), 30)
        for one, another in zip(mine.variants, theirs.variants, strict=True):
            assert one.log_loss != another.log_loss
        assert mine.won == theirs.won
        for aim in (DEFAULT, LOG_LOSS):
            before, after = scored[aim][: until - 15], others[aim][: until - 15]
            assert np.array_equal(before, after), until
            assert not np.array_equal(scored[aim], others[aim])
        assert until > 15 or mine.of(DEFAULT).first_log_loss == theirs.of(DEFAULT).first_log_loss


def test_the_first_part_has_a_say() -> None:
    """Other rounds there, other predictions of all later ones."""
    other = [*map(turned, LONG[:7]), *LONG[7:]]
    (_, mine), (_, theirs) = fit(GLICKO, game(LONG), 20), fit(GLICKO, game(other), 20)
    assert not np.array_equal(mine[LOG_LOSS][:2], theirs[LOG_LOSS][:2])


class Stepwise:
    """A system whose one parameter fits only a time of the season: the mean of its first sides
    depends on the number of the round."""

    name, space = "stepwise", (Dimension("at", 0.0, 1.0, 0.1, "linear"),)

    def __init__(self) -> None:
        self.plays: list[tuple[int, float]] = []

    def config(self, values: Mapping[str, float]) -> Any:
        return values["at"]

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        run = GLICKO.play(sessions, GLICKO.config({"beta": 300.0, "sigma_drift": 9.0}))
        self.plays.append((len(run.sides.number), config))
        now = np.repeat(run.sides.number, run.sides.sizes) / 150.0
        worse = run.sides.variance * (1.0 + 40.0 * np.abs(now - config)) ** 2
        return run._replace(sides=type(run.sides)(*[
            worse if name == "variance" else getattr(run.sides, name)
            for name in type(run.sides).__struct_fields__
        ]))  # fmt: skip

    def described(self, config: Any) -> dict[str, Any]:
        return {"at": config}


def test_parameters_are_followed_to_where_they_fit() -> None:
    """The last ones suit the end of the season, and the gain is what they gained."""
    found, scored = fit(Stepwise(), game(LONG), 60)
    assert found.changes > 0
    assert found.of(LOG_LOSS).config["at"] > found.of(DEFAULT).config["at"]
    gain = found.gain
    assert gain.followed == average(scored[LOG_LOSS], LOG_LOSS) == found.of(LOG_LOSS).log_loss
    assert gain.default == average(scored[DEFAULT], LOG_LOSS) == found.of(DEFAULT).log_loss
    assert gain.followed is not None and gain.validated is not None
    assert gain.followed < gain.validated


def test_a_search_on_the_way_sees_the_rounds_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a third and at two thirds of the rounds that are scored."""
    seen = list[int]()
    own = tuning.refined

    def watched(problem: Any, point: Any, trials: int) -> Any:
        seen.append(sum(len(each.rounds) for each in problem.first))
        return own(problem, point, trials)

    monkeypatch.setattr(forward, "refined", watched)
    fit(GLICKO, game(LONG), 20)
    assert seen == pytest.approx([15 + 135 / 3, 15 + 135 * 2 / 3], abs=5)


class Diverging(Stepwise):
    """A system whose ratings diverge in later rounds except by its first guess."""

    name = "diverging"

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        rounds = list(sessions)
        if config != 0.1 and max(int(each.numbers.max()) for each in rounds) > 20:
            raise ArithmeticError("beliefs are no numbers")
        return super().play(rounds, config)


def test_points_that_diverge_later_are_not_followed() -> None:
    """The first guess predicts all rounds then."""
    found, _ = fit(Diverging(), game(LONG), 30)
    assert found.changes == 0 and found.of(LOG_LOSS).config == {"at": 0.1}


def test_order_is_measured_beside() -> None:
    """Of the very predictions that have the log loss."""
    found, scored = fit(GLICKO, game(LONG), 20)
    assert found.of(LOG_LOSS).order == average(scored[LOG_LOSS], ORDER)
    assert len(scored[LOG_LOSS]) == 135


# --- each part of a game is predicted by what was best before it ----------------------------------


def candidates(*losses: list[float], cost: float = 0.0, since: int = 0) -> list[Candidate]:
    return [Candidate([0.1 * i], cost, np.array(each), since) for i, each in enumerate(losses)]


def test_the_best_so_far_predicts_the_next_part() -> None:
    """Until then the first one does, whatever comes later. A point that was found later predicts
    later rounds alone, however good it is on those before. One that was worse on the first part, or
    is far from the prior's mean, must make up for it."""
    ones = [1.0] * 30
    turning = [0.9] * 10 + [1.5] * 20
    chosen = followed(candidates(ones, turning), 0, np.arange(30))
    assert len(parts_of(np.arange(30))) == PARTS == 30
    assert chosen.tolist() == [0] + [1] * 11 + [0] * 18
    assert followed(candidates(ones, turning), 1, np.arange(30))[0] == 1
    one, two = candidates(ones, [0.5] * 30)
    chosen = followed([one, two._replace(since=12)], 0, np.arange(30))
    assert chosen.tolist() == [0] * 12 + [1] * 18
    near, far = candidates(ones, [0.9] * 30)
    chosen = followed([near, far._replace(cost=0.55)], 0, np.arange(30))
    assert chosen.tolist() == [0] * 6 + [1] * 24


def test_no_round_has_a_say_in_its_own_prediction() -> None:
    """Nor has a later one: what they lose changes nothing before the next part."""
    random = np.random.default_rng(3)
    losses = random.normal(1.0, 0.3, (4, 90))
    numbers = np.arange(90)
    before = followed(candidates(*losses.tolist()), 2, numbers)
    for start, _ in parts_of(numbers):
        changed = losses.copy()
        changed[:, start:] = random.normal(1.0, 3.0, (4, 90 - start))
        after = followed(candidates(*changed.tolist()), 2, numbers)
        assert after[: start + 1].tolist() == before[: start + 1].tolist()
    assert len(set(before.tolist())) > 1


def test_the_parts_of_a_cut_round_are_in_one_part() -> None:
    """They have one number."""
    numbers = np.repeat(np.arange(7), [50, 1, 1, 30, 1, 200, 9])
    parts = parts_of(numbers)
    assert (parts[0][0], parts[-1][1]) == (0, len(numbers))
    assert [end for _, end in parts[:-1]] == [start for start, _ in parts[1:]]
    for start, _ in parts[1:]:
        assert numbers[start - 1] != numbers[start]
    assert parts_of(numbers[:0]) == []
    assert followed(candidates([], []), 0, numbers[:0]).tolist() == []


def test_a_few_points_unlike_each_other_are_followed() -> None:
    """The wanted ones in any case and once, then others in their order."""
    wanted = [[0.5, 0.5], [0.52, 0.5], [0.5, 0.5]]
    others = [[0.55, 0.5], [0.9, 0.5], [0.9, 0.55], [0.5, 0.9], [0.1, 0.1]]
    due = [[0.5, 0.5], [0.52, 0.5], [0.9, 0.5], [0.5, 0.9]]
    assert distinct(wanted, others, 4, 0.12) == due
    assert distinct(wanted, others, 99, 0.12) == [*due, [0.1, 0.1]]
    assert distinct(wanted, others, 99, 0.0)[2:] == others


@cases("count", [1, 2, 29, 31, 100])
def test_parts_have_about_the_same_size(count: int) -> None:
    """As many parts as there are rounds, if these are few."""
    sizes = [end - start for start, end in parts_of(np.arange(count))]
    assert sum(sizes) == count and len(sizes) == min(count, PARTS)
    assert max(sizes) - min(sizes) <= 1
