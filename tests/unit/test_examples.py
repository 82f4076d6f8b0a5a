"""The examples' pure parts: predictions, line-ups, the made-up season and the ladders file."""

import itertools
import json
import math
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from demonstration.corner import NoCorner, with_database
from demonstration.figures import Phase, agreement, percentile
from examples import game_backend, matchmaking
from examples.game_backend import Season, players_of
from examples.matchmaking import (
    BETA,
    EXHAUSTIVE,
    NEWCOMER,
    Rating,
    Ratings,
    Table,
    beta_of,
    even_teams,
    lobbies,
    win_probability,
)
from local.tools import ROOT
from stream_rater.config.files import read_ladders
from stream_rater.config.ladders import DEFAULT_RATING
from stream_rater.rating.parameters import EloMMR
from stream_rater.rating.stages import rule_of
from stream_rater.replay.files import read_lines
from tests.rounds import Reader

EXAMPLES = ROOT / "deploy" / "examples"
LADDERS = EXAMPLES / "ladders.toml"

STRONG, WEAK = Rating(mu=1800.0, sigma=80.0), Rating(mu=1500.0, sigma=80.0)


# --- win_probability ------------------------------------------------------------------------------


def test_equal_players_win_half_of_the_time() -> None:
    """No lead, no favourite."""
    assert win_probability([WEAK], [WEAK]) == 0.5


def test_chances_of_both_sides_add_up_to_one() -> None:
    """Whoever is asked about first."""
    ours = win_probability([STRONG], [WEAK])
    assert ours + win_probability([WEAK], [STRONG]) == pytest.approx(1.0, abs=1e-15)


def test_a_lead_of_one_delta_wins_as_the_normal_distribution_says() -> None:
    """Phi(1) = 0.8413, the share of a normal variable below one sigma."""
    a, b = Rating(mu=1700.0, sigma=60.0), Rating(mu=1500.0, sigma=80.0)
    beta = math.sqrt((200.0**2 - 60.0**2 - 80.0**2) / 2.0)
    expected = 0.8413447460685429
    assert win_probability([a], [b], beta) == pytest.approx(expected, abs=1e-12)


def test_an_unknown_player_is_never_a_sure_winner_or_loser() -> None:
    """The same lead says less when less is known."""
    unsure = Rating(mu=1800.0, sigma=350.0)
    assert 0.5 < win_probability([unsure], [WEAK]) < win_probability([STRONG], [WEAK])


def test_huge_leads_stay_probabilities() -> None:
    """No overflow at any lead."""
    assert win_probability([Rating(mu=1e9)], [Rating(mu=-1e9)]) == 1.0
    assert win_probability([Rating(mu=-1e9)], [Rating(mu=1e9)]) == 0.0


def test_two_newcomers_against_one_start_level() -> None:
    """Sides of unequal size are compared by deviations from the initial rating, as in rating."""
    assert win_probability([NEWCOMER, NEWCOMER], [NEWCOMER]) == 0.5


def test_a_team_is_the_sum_of_its_members() -> None:
    """A strong and a weak player are level with two in the middle."""
    middle = Rating(mu=1650.0, sigma=80.0)
    assert win_probability([STRONG, WEAK], [middle, middle]) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize(("weight", "sigma", "drift"), [(0.2, 80.0, 0.0), (0.1, 70.0, 3.0)])
def test_beta_of_is_the_spread_that_the_rating_system_takes(
    weight: float, sigma: float, drift: float
) -> None:
    """From weight_limit and sigma_limit to beta and, through the service's own formula, back."""
    beta, gamma = beta_of(weight, sigma), math.sqrt(weight) * sigma
    assert EloMMR(beta=beta, gamma=gamma).limits == pytest.approx((weight, sigma))
    assert beta_of(weight, sigma, drift) ** 2 == pytest.approx(beta**2 + drift / weight)


def test_the_defaults_are_those_of_a_ladder_with_default_parameters() -> None:
    """BETA and NEWCOMER are what the service starts from."""
    assert pytest.approx(beta_of(*DEFAULT_RATING.limits), abs=0.1) == BETA
    assert (NEWCOMER.mu, NEWCOMER.sigma) == (
        DEFAULT_RATING.initial_mu,
        DEFAULT_RATING.initial_sigma,
    )
    assert NEWCOMER.shown == rule_of(DEFAULT_RATING).rating(NEWCOMER.mu, NEWCOMER.sigma)


# --- line-ups -------------------------------------------------------------------------------------


def a_table(count: int, seed: int = 1) -> Table:
    rng = random.Random(seed)
    return {f"p{i}": Rating(mu=rng.gauss(1500.0, 300.0), sigma=80.0) for i in range(count)}


def gap(ours: tuple[str, ...], theirs: tuple[str, ...], table: Table) -> float:
    return abs(sum(table[a].mu for a in ours) - sum(table[b].mu for b in theirs))


def least_gap(table: Table) -> float:
    total = sum(each.mu for each in table.values())
    halves = itertools.combinations(table, len(table) // 2)
    return min(abs(total - 2.0 * sum(table[name].mu for name in half)) for half in halves)


@pytest.mark.parametrize("count", [2, 4, 6, 8, 12])
def test_small_teams_are_as_even_as_they_can_be(count: int) -> None:
    """No split of so few players is better."""
    table = a_table(count)
    ours, theirs = even_teams(list(table), table)
    assert sorted(ours + theirs) == sorted(table)
    assert gap(ours, theirs, table) == pytest.approx(least_gap(table), abs=1e-9)


@pytest.mark.parametrize("count", [14, 16, 40])
def test_large_teams_are_of_one_size_and_nearly_even(count: int) -> None:
    """Within a tenth of the spread of a single player."""
    table = a_table(count)
    assert count > EXHAUSTIVE
    ours, theirs = even_teams(list(table), table)
    assert sorted(ours + theirs) == sorted(table) and len(ours) == len(theirs)
    assert gap(ours, theirs, table) < 30.0


def test_teams_do_not_depend_on_the_order_of_the_names() -> None:
    """The same players, the same teams."""
    table = a_table(10)
    assert even_teams(sorted(table), table) == even_teams(sorted(table, reverse=True), table)


@pytest.mark.parametrize("players", [[], ["a"], ["a", "b", "c"], ["a", "a"]])
def test_teams_need_an_even_number_of_different_players(players: list[str]) -> None:
    """Anything else is refused, not guessed."""
    with pytest.raises(ValueError, match="even number of different players"):
        even_teams(players, {})


def test_who_has_not_played_counts_as_a_newcomer() -> None:
    """The strong player is not put beside the stronger of the two others."""
    table = {"strong": STRONG, "weak": WEAK, "good": Rating(mu=1600.0)}
    ours, theirs = even_teams(["strong", "weak", "good", "unknown"], table)
    assert {"strong", "good"} not in (set(ours), set(theirs))


@pytest.mark.parametrize(("count", "size", "sizes"), [(8, 4, [4, 4]), (9, 4, [4, 5]), (3, 8, [3])])
def test_lobbies_hold_everybody_once_in_order_of_rating(
    count: int, size: int, sizes: list[int]
) -> None:
    """Players next to each other play each other; nobody is left over."""
    table = a_table(count)
    groups = lobbies(list(table), table, size)
    assert [len(group) for group in groups] == sizes
    flat = [table[name].mu for group in groups for name in group]
    assert flat == sorted(flat, reverse=True)


# --- the local table ------------------------------------------------------------------------------


def a_change(
    player: str, rounds: int, mu: float, ladder: str = "a", offset: int | None = None
) -> dict[str, object]:
    """What the table takes of an event: of this many rounds, the last one at the offset, which is
    ten times as great if it is not given."""
    return {"ladder": ladder, "player": player, "mu": mu, "sigma": 80.0, "rating": mu - 1.0,
            "rounds": rounds, "provisional": rounds < 5,
            "offset": 10 * rounds if offset is None else offset}  # fmt: skip


def table_of(changes: Iterable[dict[str, object]]) -> dict[str, Table]:
    """The ratings, by ladder, after events in this order."""
    ratings = Ratings.__new__(Ratings)  # without a Kafka
    ratings.ladders = {}
    for each in changes:
        ratings._take(each)
    return ratings.ladders


def test_the_table_holds_a_players_last_round_whatever_comes_last() -> None:
    """After shards were added, old events are in another partition: any order between two is
    possible. Players and ladders count apart."""
    old = [a_change("ann", 2, 1450.0), a_change("ann", 3, 1500.0)]
    new = [a_change("ann", 4, 1600.0), a_change("ann", 9, 1700.0)]
    others = [a_change("bob", 1, 1510.0), a_change("ann", 1, 1520.0, "b")]
    for in_order in ([*old, *new], [*new, *old], [new[0], *old, new[1]], [old[0], *new, old[1]]):
        ladders = table_of([*others, *in_order])
        assert ladders["a"] == {
            "ann": Rating(1700.0, 80.0, 1699.0, 9, False, 90),
            "bob": Rating(1510.0, 80.0, 1509.0, 1, True, 10),
        }  # fmt: skip
        assert ladders["b"] == {"ann": Rating(1520.0, 80.0, 1519.0, 1, True, 10)}


def test_a_correction_counts_although_it_takes_rounds_away() -> None:
    """It is newer by its offset, and has fewer rounds, down to none; a round after it is newer
    still."""
    before = a_change("ann", 3, 1500.0, offset=30)
    voided = a_change("ann", 2, 1450.0, offset=40)
    again = a_change("ann", 3, 1480.0, offset=50)
    none_left = a_change("ann", 0, 1400.0, offset=60)
    for last, events in (
        (voided, [before, voided]),
        (again, [before, voided, again]),
        (none_left, [before, voided, again, none_left]),
    ):
        for in_order in itertools.permutations(events):
            (rating,) = table_of(in_order)["a"].values()
            assert (rating.mu, rating.offset) == (last["mu"], last["offset"])


def test_an_event_at_the_first_offset_counts() -> None:
    """An offset of 0 is one."""
    assert table_of([a_change("ann", 1, 1510.0, offset=0)])["a"]["ann"].mu == 1510.0


# --- the season -----------------------------------------------------------------------------------


def test_a_seed_gives_the_same_players_and_results() -> None:
    """All but ids and times."""
    rounds = [[each["standings"] for each in Season(7).rounds(50)] for _ in range(2)]
    assert rounds[0] == rounds[1]
    assert rounds[0] != [each["standings"] for each in Season(8).rounds(50)]
    assert Season(7).skills == Season(7, first=50).skills


def test_every_round_of_a_season_is_valid_for_the_example_ladders() -> None:
    """The service rates them all, so that one rating change a player follows."""
    reader = Reader(read_ladders(LADDERS))
    kinds: set[str] = set()
    for finished in Season(3).rounds(300):
        standings = reader.read(json.dumps(finished).encode())
        assert standings.is_informative(skip_all_tied=False)
        assert len(standings.players) == players_of(finished)
        kinds |= {key for entry in finished["standings"] for key in entry}
    assert kinds == {"player", "team", "shares", "rank", "dnf"}


def test_the_example_rounds_are_valid() -> None:
    """`submit` and `rate` take all of rounds.jsonl."""
    reader = Reader(read_ladders(LADDERS))
    assert [reader.read(line).round_id for line in read_lines(EXAMPLES / "rounds.jsonl")] == [
        f"example-{i}" for i in range(1, 6)
    ]


@pytest.mark.parametrize("example", [game_backend, matchmaking])
def test_examples_are_self_contained(example: object) -> None:
    """They import nothing of ours, so that they can be copied."""
    source = Path(str(example.__file__)).read_text()  # type: ignore[attr-defined]
    assert "stream_rater" not in source and "from local" not in source


# --- the demo's figures ---------------------------------------------------------------------------


def an_event(number: int, completed_at: str) -> dict[str, str]:
    return {"event_id": f"e{number}", "round_id": f"r{number}", "completed_at": completed_at}


def test_a_phase_counts_and_times_what_arrives() -> None:
    """Latency from `completed_at`, after the warm-up; the rate from the first arrival on."""
    phase = Phase(warm_up_s=1.0)
    phase.take([an_event(1, "1970-01-01T00:01:40Z")], 101.0)
    phase.take([an_event(2, "1970-01-01T00:01:41.5Z"), an_event(2, "1970-01-01T00:01:42Z")], 103.0)
    assert phase.latencies_ms == [1500.0, 1000.0]
    assert (phase.changes, phase.twice, phase.per_second) == (3, 1, 1.0)


def test_percentiles_are_values_that_were_measured() -> None:
    """The nearest rank, and nan of nothing."""
    assert [percentile([4, 1, 3, 2], p) for p in (0, 50, 51, 100)] == [1, 2, 3, 4]
    assert math.isnan(percentile([], 50))


def test_agreement_is_the_share_of_pairs_in_true_order() -> None:
    """Of three pairs, two are in order."""
    assert agreement({"a": 3.0, "b": 1.0, "c": 2.0}, {"a": 9, "b": 8, "c": 7}) == 2 / 3


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:6379", "redis://127.0.0.1:6379/5"),
        ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379/5"),
        (
            "rediss://me:secret@host:1/3?ssl_ca_certs=x",
            "rediss://me:secret@host:1/5?ssl_ca_certs=x",
        ),
    ],
)
def test_another_database_of_the_same_server(address: str, expected: str) -> None:
    """Only the number changes."""
    assert with_database(address, 5) == expected


def test_a_socket_is_refused_politely() -> None:
    """What the demo cannot take a database of."""
    with pytest.raises(NoCorner, match="redis://"):
        with_database("unix:///run/redis.sock", 5)
