"""The examples: predictions, line-ups, season and ladders file; and matchmaking as typed."""

import itertools
import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from demonstration.figures import Phase, agreement, percentile
from examples import game_backend, matchmaking
from examples.game_backend import Season, players_of
from examples.matchmaking import NEWCOMER, Rating, Ratings, Table, beta_of, win_probability
from local.tools import ROOT
from stream_rater.config.files import read_ladders
from stream_rater.config.ladders import DEFAULT_RATING
from stream_rater.contract.events import joined, to_json
from stream_rater.rating.parameters import EloMMR
from stream_rater.rating.stages import rule_of
from stream_rater.rating.systems.two_moment import BETTER
from stream_rater.replay.files import read_lines
from tests.rounds import Reader

EXAMPLES = ROOT / "deploy" / "examples"
LADDERS = EXAMPLES / "ladders.toml"

STRONG, WEAK = Rating(mu=1800.0, sigma=80.0), Rating(mu=1500.0, sigma=80.0)


def test_chances_of_both_sides_add_up_to_one() -> None:
    """Equals win half the time. Sides are compared by deviations from the initial rating."""
    ours = win_probability([STRONG], [WEAK])
    assert ours + win_probability([WEAK], [STRONG]) == pytest.approx(1.0, abs=1e-15)
    assert win_probability([WEAK], [WEAK]) == 0.5
    assert win_probability([NEWCOMER, NEWCOMER], [NEWCOMER]) == 0.5
    middle = Rating(mu=1650.0, sigma=80.0)
    assert win_probability([STRONG, WEAK], [middle, middle]) == pytest.approx(0.5, abs=1e-12)
    assert win_probability([Rating(mu=1e9)], [Rating(mu=-1e9)]) == 1.0
    assert win_probability([Rating(mu=-1e9)], [Rating(mu=1e9)]) == 0.0


def test_a_lead_of_one_delta_wins_as_the_normal_distribution_says() -> None:
    """Phi(1) = 0.8413. The same lead counts for less when less is known."""
    a, b = Rating(mu=1700.0, sigma=60.0), Rating(mu=1500.0, sigma=80.0)
    beta = math.sqrt((200.0**2 - 60.0**2 - 80.0**2) / 2.0)
    expected = 0.8413447460685429
    assert win_probability([a], [b], beta) == pytest.approx(expected, abs=1e-12)
    unsure = Rating(mu=1800.0, sigma=350.0)
    assert 0.5 < win_probability([unsure], [WEAK]) < win_probability([STRONG], [WEAK])


def test_beta_of_is_the_spread_that_the_rating_system_takes() -> None:
    """From the limits to beta and back. BETA and NEWCOMER are the service's defaults."""
    for weight, sigma, drift in ((0.2, 80.0, 0.0), (0.1, 70.0, 3.0)):
        beta, gamma = beta_of(weight, sigma), math.sqrt(weight) * sigma
        assert EloMMR(beta=beta, gamma=gamma).limits == pytest.approx((weight, sigma))
        assert beta_of(weight, sigma, drift) ** 2 == pytest.approx(beta**2 + drift / weight)
    assert pytest.approx(beta_of(*DEFAULT_RATING.limits), abs=0.1) == matchmaking.BETA
    first = (DEFAULT_RATING.initial_mu, DEFAULT_RATING.initial_sigma)
    assert (NEWCOMER.mu, NEWCOMER.sigma) == first
    assert NEWCOMER.shown == rule_of(DEFAULT_RATING).rating(NEWCOMER.mu, NEWCOMER.sigma)


def a_table(count: int, seed: int = 1) -> Table:
    rng = random.Random(seed)
    return {f"p{i}": Rating(mu=rng.gauss(1500.0, 300.0), sigma=80.0) for i in range(count)}


def gap(ours: tuple[str, ...], theirs: tuple[str, ...], table: Table) -> float:
    return abs(sum(table[a].mu for a in ours) - sum(table[b].mu for b in theirs))


def least_gap(table: Table) -> float:
    total = sum(each.mu for each in table.values())
    halves = itertools.combinations(table, len(table) // 2)
    return min(abs(total - 2.0 * sum(table[name].mu for name in half)) for half in halves)


def test_teams_are_even() -> None:
    """Small ones are as even as can be, large ones nearly; of one size, in any order of names."""
    for count in (2, 4, 6, 8, 12, 14, 16, 40):
        table = a_table(count)
        ours, theirs = matchmaking.even_teams(list(table), table)
        assert sorted(ours + theirs) == sorted(table) and len(ours) == len(theirs)
        if count <= matchmaking.EXHAUSTIVE:
            assert gap(ours, theirs, table) == pytest.approx(least_gap(table), abs=1e-9)
        else:
            assert gap(ours, theirs, table) < 30.0
        for names in (sorted(table), sorted(table, reverse=True)):
            assert matchmaking.even_teams(names, table) == (ours, theirs)
    assert 12 <= matchmaking.EXHAUSTIVE < 14


def test_who_can_be_in_a_team() -> None:
    """An even number of different players. Who has not played counts as a newcomer."""
    for players in ([], ["a"], ["a", "b", "c"], ["a", "a"]):
        with pytest.raises(ValueError, match="even number of different players"):
            matchmaking.even_teams(players, {})
    table = {"strong": STRONG, "weak": WEAK, "good": Rating(mu=1600.0)}
    ours, theirs = matchmaking.even_teams(["strong", "weak", "good", "unknown"], table)
    assert {"strong", "good"} not in (set(ours), set(theirs))


def test_lobbies_hold_everybody_once_in_order_of_rating() -> None:
    """Players next to each other play each other; nobody is left over."""
    for count, size, sizes in ((8, 4, [4, 4]), (9, 4, [4, 5]), (3, 8, [3])):
        table = a_table(count)
        groups = matchmaking.lobbies(list(table), table, size)
        assert [len(group) for group in groups] == sizes
        flat = [table[name].mu for group in groups for name in group]
        assert flat == sorted(flat, reverse=True)


def a_change(
    player: str, rounds: int, mu: float, ladder: str = "a", offset: int | None = None
) -> dict[str, object]:
    """The fields of an event that the table reads. The offset is by default ten times `rounds`."""
    return {"ladder": ladder, "player": player, "mu": mu, "sigma": 80.0, "rating": mu - 1.0,
            "rounds": rounds, "provisional": rounds < 5,
            "offset": 10 * rounds if offset is None else offset}  # fmt: skip


def without_kafka() -> Ratings:
    ratings = Ratings.__new__(Ratings)
    ratings.ladders, ratings._lagging = {}, set()
    return ratings


def table_of(changes: Iterable[dict[str, object]]) -> dict[str, Table]:
    ratings = without_kafka()
    for each in changes:
        ratings._take(each)
    return ratings.ladders


def test_the_table_holds_a_players_last_round_whatever_comes_last() -> None:
    """After shards were added, two events may come in any order. Ladders are kept apart."""
    old = [a_change("ann", 2, 1450.0), a_change("ann", 3, 1500.0)]
    new = [a_change("ann", 4, 1600.0), a_change("ann", 9, 1700.0)]
    others = [a_change("bob", 1, 1510.0, offset=0), a_change("ann", 1, 1520.0, "b")]
    for in_order in ([*old, *new], [*new, *old], [new[0], *old, new[1]], [old[0], *new, old[1]]):
        ladders = table_of([*others, *in_order])
        assert ladders["a"] == {
            "ann": Rating(1700.0, 80.0, 1699.0, 9, False, 90),
            "bob": Rating(1510.0, 80.0, 1509.0, 1, True, 0),
        }  # fmt: skip
        assert ladders["b"] == {"ann": Rating(1520.0, 80.0, 1519.0, 1, True, 10)}


def test_a_correction_counts_although_it_takes_rounds_away() -> None:
    """It is newer by its offset, and may leave no round; a round after it is newer still."""
    events = [
        a_change("ann", 3, 1500.0, offset=30), a_change("ann", 2, 1450.0, offset=40),
        a_change("ann", 3, 1480.0, offset=50), a_change("ann", 0, 1400.0, offset=60),
    ]  # fmt: skip
    for count in (2, 3, 4):
        last = events[count - 1]
        for in_order in itertools.permutations(events[:count]):
            (rating,) = table_of(in_order)["a"].values()
            assert (rating.mu, rating.offset) == (last["mu"], last["offset"])


def message(key: bytes, value: bytes | None) -> Any:
    return SimpleNamespace(key=lambda: key, value=lambda: value, error=lambda: None)


def test_a_player_who_was_erased_is_forgotten() -> None:
    """By the key of a record without a value, whatever the ids; later events of others count."""
    event = a_change("ü%", 1, 1.0, "l:1", offset=3)
    key, other = joined("l:1", "ü%").encode(), joined("l:1", "bob").encode()
    ratings = without_kafka()
    ratings._consumer = SimpleNamespace(  # type: ignore[assignment]
        poll=lambda _: message(key, to_json(event)),
        consume=lambda *_: [
            message(key, None), message(b"l%3A2:bob", None),
            message(other, to_json(event | {"player": "bob"})),
        ],
    )  # fmt: skip
    assert [each["player"] for each in ratings.poll(0.0)] == ["ü%", "bob"]
    assert set(ratings.table("l:1")) == {"bob"}


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ratings of one ladder, without a Kafka."""
    table = {
        "ann": Rating(1700.0, 80.0, 1699.0, 9, provisional=False),
        "bob": Rating(1500.0, 80.0, 1499.0, 2, provisional=True),
        "cy": Rating(1600.0, 80.0, 1599.0, 9, provisional=False),
        "dee": Rating(1400.0, 80.0, 1399.0, 9, provisional=False),
    }

    def made(self: Any, *_: str) -> None:
        self.ladders = {"ranked-eu": table}

    monkeypatch.setattr(Ratings, "__init__", made)
    monkeypatch.setattr(Ratings, "catch_up", lambda _: None)
    monkeypatch.setattr(Ratings, "close", lambda _: None)
    monkeypatch.delenv("STREAM_RATER_LADDERS", raising=False)


def run_example(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    return matchmaking.main(["--ladder", "ranked-eu", *words]), *capsys.readouterr()


def test_matchmaking_as_typed(followed: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt ladder is an error with similar names. Provisional ratings are marked."""
    code, out, err = run_example(capsys, "--ladder", "rankd-eu", "--players", "ann,bob")
    assert (code, out) == (2, "")
    assert err == "matchmaking: nobody has played on rankd-eu; ladders like it: ranked-eu\n"
    _, out, _ = run_example(capsys, "--players", "ann,bob")
    assert out.startswith("ann (1700 ± 80) beats bob (1500 ± 80, provisional) with probability")
    code, out, _ = run_example(capsys, "--teams", "ann,cy", "bob,dee")
    strong = int(out.splitlines()[-1].rpartition(" ")[2].rstrip("%"))
    assert code == 0 and out.startswith("team 1: ann") and strong > 60
    code, _, err = run_example(capsys, "--teams", "ann,cy", "ann,dee")
    assert code == 2 and "nobody plays in both" in err


def test_the_spread_is_the_ladders(
    followed: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """By the parameters in the ladders file, or its template's; what varies more is less sure."""
    for ladder in ("ranked-eu", "anything"):  # the second by the template
        assert matchmaking.beta_for(LADDERS, ladder) == BETTER["beta"]
    assert matchmaking.beta_for(LADDERS, "royale-eu") == pytest.approx(beta_of(0.1, 70.0))
    file = tmp_path / "l.toml"
    file.write_text(
        '[ladders.ranked-eu.rating]\nsystem = "elo-mmr"\nbeta = 2000\ngamma = 9\n'
        '[ladders.other.rating]\nsystem = "elo-r"\n'
    )
    chances = [run_example(capsys, "--players", "ann,bob", *words)[1].split()[-1]
               for words in ([], ["--ladders", str(file)], ["--beta", "2000"])]  # fmt: skip
    assert chances[0] > chances[1] == chances[2]
    for ladder, reason in (("other", "system elo-r: give --beta"), ("none", "no ladder none")):
        with pytest.raises(ValueError, match=reason):
            matchmaking.beta_for(file, ladder)


def test_a_seed_gives_the_same_players_and_results() -> None:
    """All but ids and times."""
    rounds = [[each["standings"] for each in Season(7).rounds(50)] for _ in range(2)]
    assert rounds[0] == rounds[1]
    assert rounds[0] != [each["standings"] for each in Season(8).rounds(50)]
    assert Season(7).skills == Season(7, first=50).skills


def test_rounds_are_valid_for_the_example_ladders() -> None:
    """The service rates each round of a season. `submit` and `rate` take all of rounds.jsonl."""
    reader = Reader(read_ladders(LADDERS))
    kinds: set[str] = set()
    for finished in Season(3).rounds(300):
        standings = reader.read(json.dumps(finished).encode())
        assert standings.is_informative(skip_all_tied=False)
        assert len(standings.players) == players_of(finished)
        kinds |= {key for entry in finished["standings"] for key in entry}
    assert kinds == {"player", "team", "shares", "rank", "dnf"}
    assert [reader.read(line).round_id for line in read_lines(EXAMPLES / "rounds.jsonl")] == [
        f"example-{i}" for i in range(1, 6)
    ]


def test_examples_are_self_contained() -> None:
    """They import nothing of ours, so that they can be copied."""
    for example in (game_backend, matchmaking):
        source = Path(str(example.__file__)).read_text()
        assert "stream_rater" not in source and "from local" not in source


def test_a_phase_counts_and_times_what_arrives() -> None:
    """Latency from `completed_at`, after the warm-up; the rate from the first arrival on."""

    def event(number: int, completed_at: str) -> dict[str, str]:
        return {"event_id": f"e{number}", "round_id": f"r{number}", "completed_at": completed_at}

    phase = Phase(warm_up_s=1.0)
    phase.take([event(1, "1970-01-01T00:01:40Z")], 101.0)
    phase.take([event(2, "1970-01-01T00:01:41.5Z"), event(2, "1970-01-01T00:01:42Z")], 103.0)
    assert phase.latencies_ms == [1500.0, 1000.0]
    assert (phase.changes, phase.twice, phase.per_second) == (3, 1, 1.0)


def test_percentiles_and_agreement() -> None:
    """A percentile is a measured value; agreement is the share of pairs in their true order."""
    assert [percentile([4, 1, 3, 2], p) for p in (0, 50, 51, 100)] == [1, 2, 3, 4]
    assert math.isnan(percentile([], 50))
    assert agreement({"a": 3.0, "b": 1.0, "c": 2.0}, {"a": 9, "b": 8, "c": 7}) == 2 / 3
