"""Games: how seasons are cut, tuned on their first part alone, chosen and compared."""

from dataclasses import replace

import numpy as np
import pytest

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation.fits import DEFAULT, LOG_LOSS, OwnSystem
from stream_rater.evaluation.measures import FIELDS, OF_PAIRS
from stream_rater.evaluation.season import Session
from tests.benchmarks.lab import forward, games
from tests.benchmarks.lab.game import Game, Kind, deal_teams, games_of, season
from tests.rounds import as_json, ranked
from tests.unit.test_season import sessions

SEASON = list(season(Kind(players=30, rounds=60, per_round=12), 3))


def game(rounds: list[Session] = SEASON) -> Game:
    (found,) = games_of("made up", rounds)
    return found


def test_a_season_is_cut_into_small_rounds_and_into_teams() -> None:
    """The whole is first. Sizes without two rounds are left out. A round's parts stay together."""
    found = list(games_of("made up", SEASON, (2, 5, 7), 3))
    assert [each.name for each in found] == ["made up", "made up, 2", "made up, 5",
                                             "made up, 3 against 3"]  # fmt: skip
    assert [set(each.sizes()) for each in found] == [{12}, {2}, {2, 5}, {2}]
    assert {each.boundary for each in found} == {6}
    assert {int(m) for each in found[3].sessions for m in each.rounds.members} == {3}
    for each in found:
        assert {int(n) for session in each.first for n in session.numbers} == set(range(6))
    lines = [
        as_json({"team": ["a", "b"], "rank": 1}, {"team": ["c", "d"], "rank": 2}, round_id=str(i))
        for i in range(20)
    ]
    assert len(list(games_of("teams", sessions(*lines)[0], (2,), 1))) == 1
    line = as_json({"player": "a", "rank": 1, "seat": "home"}, {"player": "b", "rank": 2})
    seated, bare = games_of("seats", sessions(line)[0])
    assert bare.name == "seats, without seats and scores"
    assert [len(each.sessions[0].rounds.seat) for each in (seated, bare)] == [2, 0]


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


def _rank(value: float, among: list[float]) -> float:
    return sum(each < value for each in among) + 0.5 * (among.count(value) + 1)


def scored(loss: Floats, order: Floats) -> Floats:
    """Scores of rounds of two."""
    found = np.zeros((len(loss), OF_PAIRS))
    for name in ("experienced", "entries", "scored"):
        found[:, FIELDS.index(name)] = 2.0
    found[:, FIELDS.index("log_loss")] = loss
    found[:, FIELDS.index("order")] = order
    found[:, FIELDS.index("order_all")] = order
    return found


def test_verdicts_have_the_right_sign() -> None:
    """Less log loss is better, and so is more order. Within the interval there is no difference."""
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


def test_the_default_is_compared_untuned() -> None:
    """Each case has its own scores of both: raw, calibrated and tuned ones."""
    loss, order = np.random.default_rng(2).normal(0.6, 0.1, 400), np.full(400, 100.0)
    ways = (DEFAULT, forward.CALIBRATED, LOG_LOSS)
    own, theirs = (
        {way: scored(loss + by, order) for way, by in zip(ways, gaps, strict=True)}
        for gaps in ((0.4, 0.2, 0.1), (0.3, 0.3, 0.1))
    )
    found = list(games.verdicts({games.REFERENCE: own}, {"peer": theirs}))
    assert {v.case: round(v.difference.mean, 9) for v in found if v.measure == LOG_LOSS} == {
        "raw-untuned": 0.1, "calibrated-untuned": -0.1, "raw-tuned": 0.3, "calibrated-tuned": 0.1,
        "tuned-tuned": 0.0,
    }  # fmt: skip
    assert games.choose(["bar", games.REFERENCE]) == games.REFERENCE
    assert (games.choose(["bar", "glicko"]), games.choose([])) == ("bar", None)


def of_both(loss: Floats, order: Floats) -> forward.Scored:
    """The same by the first guess and tuned."""
    return dict.fromkeys((DEFAULT, LOG_LOSS), scored(loss, order))


LONG = list(season(Kind(players=30, rounds=150, per_round=12), 3))
GLICKO = OwnSystem("glicko")


def turned(session: Session) -> Session:
    """The last come first."""
    return replace(session, rows=session.rows[::-1].copy())


def test_no_later_round_has_a_say() -> None:
    """Whatever happens from a round on, those before it have the same predictions."""
    mine, scored = forward.fit(GLICKO, game(LONG), 30)
    for until in (15, 60, 100):
        other = [*LONG[:until], *map(turned, LONG[until:])]
        theirs, others = forward.fit(GLICKO, game(other), 30)
        for one, another in zip(mine.variants, theirs.variants, strict=True):
            assert one.log_loss != another.log_loss
        for aim in (DEFAULT, LOG_LOSS):
            before, after = scored[aim][: until - 15], others[aim][: until - 15]
            assert np.array_equal(before, after), until
            assert not np.array_equal(scored[aim], others[aim])
        assert until > 15 or mine.of(DEFAULT).first_log_loss == theirs.of(DEFAULT).first_log_loss


def test_the_first_part_has_a_say() -> None:
    """Other rounds there, other predictions of all later ones."""
    other = [*map(turned, LONG[:7]), *LONG[7:]]
    (_, mine), (_, theirs) = (
        forward.fit(GLICKO, game(LONG), 20),
        forward.fit(GLICKO, game(other), 20),
    )
    assert not np.array_equal(mine[LOG_LOSS][:2], theirs[LOG_LOSS][:2])


def candidates(*losses: list[float], cost: float = 0.0, since: int = 0) -> list[forward.Candidate]:
    return [
        forward.Candidate([0.1 * i], cost, np.array(each), since) for i, each in enumerate(losses)
    ]


def test_the_best_so_far_predicts_the_next_part() -> None:
    """A point found later predicts later rounds. One that was worse, or is far, must make up."""
    ones = [1.0] * 30
    turning = [0.9] * 10 + [1.5] * 20
    chosen = forward.followed(candidates(ones, turning), 0, np.arange(30))
    assert len(forward.parts_of(np.arange(30))) == forward.PARTS == 30
    assert chosen.tolist() == [0] + [1] * 11 + [0] * 18
    assert forward.followed(candidates(ones, turning), 1, np.arange(30))[0] == 1
    one, two = candidates(ones, [0.5] * 30)
    chosen = forward.followed([one, two._replace(since=12)], 0, np.arange(30))
    assert chosen.tolist() == [0] * 12 + [1] * 18
    near, far = candidates(ones, [0.9] * 30)
    chosen = forward.followed([near, far._replace(cost=0.55)], 0, np.arange(30))
    assert chosen.tolist() == [0] * 6 + [1] * 24
