"""Views in a ladders file: who is listed until when, tiers with hysteresis, and invalid views."""

import hashlib
import itertools
import math
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stream_rater.columns.arrays import Floats
from stream_rater.config import files
from stream_rater.config import views as rules
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import Change, Ladder, Ladders
from stream_rater.config.views import DAY_S, NO_VIEWS, Listing, NewestFacts, TermsAt, Tier, Views
from stream_rater.rating.model import DIFFUSION_VARIANCE
from stream_rater.rating.parameters import SYSTEMS, EloMMR, RatingConfig, TwoMoment
from stream_rater.rating.stages import estimate, rule_of
from tests.rounds import day, ranked, wave_among
from tests.rounds import read as read_round

ELO = EloMMR(weight_limit=0.2, sigma_limit=80.0)
DRIFTING = EloMMR(weight_limit=0.2, sigma_limit=80.0, drift_per_day=50.0)
WITHOUT = """
[ladders.eu]
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }
[[ladders.eu.changes]]
from_offset = 10
rating = { system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80, drift_per_day = 9 }
"""
LISTING = """
[ladders.eu.listing]
min_rounds = 10
max_sigma = 120
idle_days = 90
"""
TIERS = """
[[ladders.eu.tiers]]
name = "bronze"
[[ladders.eu.tiers]]
name = "silver"
from = 1200
hysteresis = 30
[[ladders.eu.tiers]]
name = "gold"
from = 1500
hysteresis = { rounds = 5 }
"""


def read(tmp_path: Path, text: str) -> Ladders:
    path = tmp_path / "ladders.toml"
    path.write_text(text)
    return files.read_ladders(path)


# --- in the file ----------------------------------------------------------------------------------


def test_views_are_read(tmp_path: Path) -> None:
    """They have the drift of each offset, or the template's. They change no fingerprint."""
    ladders, without = (read(tmp_path, text) for text in (WITHOUT + LISTING + TIERS, WITHOUT))
    views = ladders.views("eu")
    assert views.listing == Listing(min_rounds=10, max_sigma=120.0, idle_days=90.0)
    assert [tier.name for tier in views.tiers] == ["bronze", "silver", "gold"]
    assert [tier.from_rating for tier in views.tiers] == [None, 1200.0, 1500.0]
    assert views.tiers[2].hysteresis == rules.Protection(rounds=5)
    assert [each.drift_per_day for each in views.terms] == [0.0, 9.0]
    assert (views.at(9).drift_per_day, views.at(10).drift_per_day) == (0.0, 9.0)
    assert ladders.views("asia") is NO_VIEWS
    template = Ladders(ladders={"*": Ladder(rating=ELO, listing=Listing(min_rounds=3))})
    assert template.views("asia").listing.min_rounds == 3
    assert ladders.history("eu") == without.history("eu")
    for offset in (0, 9, 10, math.inf):
        assert ladders.find("eu", offset) == without.find("eu", offset)


def test_another_index_for_other_views(tmp_path: Path) -> None:
    """The id differs if other players may be listed. `display` does not count."""
    ids = {
        read(tmp_path, WITHOUT + views).views("eu").id
        for views in ("", LISTING, TIERS, LISTING + TIERS, LISTING.replace("90", "91"))
    }
    assert len(ids) == 5 and "" in ids

    def id_of(listing: Listing, *changes: Change) -> str:
        ladder = Ladder(rating=ELO, listing=listing, changes=changes)
        return Ladders(ladders={"eu": ladder}).views("eu").id

    change = Change(from_offset=5, rating=DRIFTING)
    idle, sure = Listing(idle_days=9.0), Listing(max_sigma=100.0)
    assert id_of(idle) == id_of(idle, change)
    assert id_of(sure) != id_of(sure, change)
    hidden = {id_of(Listing(unlisted=each)) for each in (("a",), ("a*",), ("a", "b"), ())}
    assert len(hidden) == 4 and id_of(Listing(unlisted=("b", "a"))) in hidden
    shown = Listing(idle_days=9.0, display="percentile")
    assert id_of(shown) == id_of(idle) and id_of(Listing(display="percentile")) == ""
    before = b'[{"min_rounds":null,"max_sigma":null,"idle_days":9.0},[],[]]'
    assert id_of(idle) == hashlib.sha256(before).hexdigest()[:16]


BAD = [
    ("min_rounds = 10", "min_rounds = 0", r"Expected `int` >= 1.*listing\.min_rounds"),
    ("min_rounds = 10", "min_rounds = -1", r"Expected `int` >= 1.*listing\.min_rounds"),
    ("min_rounds = 10", 'unlisted = ["*"]', r"listing\.unlisted\[0\]: '\*': give an id"),
    ("min_rounds = 10", 'unlisted = ["*-bot"]', r"listing\.unlisted\[0\]: .* with \* behind it"),
    ("min_rounds = 10", "least_rounds = 1", r"unknown field `least_rounds`.*listing"),
    ("max_sigma = 120", "max_sigma = 0", r"Expected `float` > 0.*listing\.max_sigma"),
    ("max_sigma = 120", "max_sigma = nan", r"listing\.max_sigma"),
    ("max_sigma = 120", "max_sigma = 80", "lists nobody: sigma stays above 80, its limit: give"),
    ("max_sigma = 120", "max_sigma = 350", "excludes nobody: give less than initial_sigma, which"),
    ("idle_days = 90", "idle_days = 0", r"Expected `float` > 0.*listing\.idle_days"),
    ("idle_days = 90", "idle_days = -1", r"Expected `float` > 0.*listing\.idle_days"),
    ('name = "bronze"', 'name = "bronze"\nfrom = 0', r"tiers\[0\]: there is no lowest tier: leave"),
    ('name = "bronze"', 'name = "bronze"\nhysteresis = 3', r"tiers\[0\]: nobody is demoted from"),
    ("from = 1200\n", "", r"tiers\[1\]: `from` is missing: only the lowest tier"),
    ('name = "gold"', 'name = "silver"', r"tiers\[2\]: the name 'silver' is taken: give another"),
    ('name = "gold"', 'name = ""', r"length >= 1.*tiers\[2\]\.name"),
    ("from = 1500", "from = 1200", r"tiers\[2\]: `from` must be over 1200, where 'silver' begins"),
    ("from = 1500", "from = 100", r"tiers\[2\]: `from` must be over 1200.*sort the tiers"),
    ("{ rounds = 5 }", "301", r"tiers\[2\]: a hysteresis of 301 overlaps all of 'silver': give at"),
    ("{ rounds = 5 }", "{ rounds = 0 }", "Expected `int` >= 1.*hysteresis"),
    ("{ rounds = 5 }", "-1", "Expected `float` >= 0.*hysteresis"),
]


def test_views_that_make_no_sense(tmp_path: Path) -> None:
    """Each is refused in one line with its place. A bound of sigma needs one in every change."""
    text = WITHOUT + LISTING + TIERS
    for old, new, says in BAD:
        assert old in text
        with pytest.raises(BadConfiguration, match=says) as refused:
            read(tmp_path, text.replace(old, new))
        assert "\n" not in str(refused.value) and "ladder 'eu'" in str(refused.value)
    systems = set()
    for name, system in SYSTEMS.items():
        try:
            Ladder(rating=system.sample(), listing=Listing(max_sigma=150.0))
        except ValueError as error:
            assert "leave it out" in str(error)
            systems.add(name)
    kerbys = {"elo", "pairwise-elo", "plackett-luce", "thurstone"}
    assert systems == {"codeforces", "topcoder", *kerbys}
    wider = EloMMR(weight_limit=0.2, sigma_limit=200.0)
    with pytest.raises(ValueError, match="stays above 200"):
        Ladder(
            rating=ELO, listing=Listing(max_sigma=150.0),
            changes=(Change(from_offset=1, rating=wider),),
        )  # fmt: skip


# --- who is listed --------------------------------------------------------------------------------

TERMS = (TermsAt(0, 0.0, math.inf, 5), TermsAt(10, 50.0, math.inf, 5), TermsAt(20, 16.0, 350.0, 3))


def some_facts(rng: random.Random) -> NewestFacts:
    rounds = rng.choice([0, 1, 4, 9, 10, 30])
    sigma = rng.choice([90.0, 119.9, 120.0, 120.1, 300.0])
    offset, played_s, hidden = rng.choice([3, 15, 25]), rng.randrange(10**6), rng.random() < 0.1
    return NewestFacts(rounds, rounds < 5, sigma, offset, played_s, hidden)


def some_listing(rng: random.Random) -> Listing:
    return Listing(
        min_rounds=rng.choice([None, 1, 10]), max_sigma=rng.choice([None, 120.0]),
        idle_days=rng.choice([None, 0.5, 90.0]),
    )  # fmt: skip


def is_listed(views: Views, facts: NewestFacts, at_s: float) -> bool:
    """By the rules as they are written in the reference."""
    listing, days = views.listing, (at_s - facts.played_s) / DAY_S
    drift = {3: 0.0, 15: 50.0, 25: 16.0}[facts.offset]
    if listing.min_rounds is None:
        enough = facts.rounds > 0 and not facts.provisional
    else:
        enough = facts.rounds >= listing.min_rounds
    active = listing.idle_days is None or days < listing.idle_days
    today = math.sqrt(facts.sigma**2 + drift * days)
    known = listing.max_sigma is None or today <= listing.max_sigma
    return enough and active and known and not facts.hidden


def test_whoever_is_listed_is_so_until_a_moment() -> None:
    """That moment agrees with the rules, and so does the reason, the first rule that excludes."""
    rng, seen = random.Random(1), set()
    for _ in range(3000):
        views, facts = Views(some_listing(rng), (), TERMS), some_facts(rng)
        until_s = rules.listed_until(views, facts)
        for days in (0.0, 0.4, 0.6, 3.0, 89.0, 91.0, 1000.0):
            at_s = facts.played_s + days * DAY_S
            if abs(at_s - until_s) < 1.0:
                continue  # the day on which sigma reaches the bound exactly
            expected = is_listed(views, facts, at_s)
            unmet = rules.why_not_listed(views, facts, at_s)
            assert (at_s < until_s) == expected == (unmet is None)
            seen.add(None if unmet is None else unmet.rule)
            if unmet is None or unmet.rule == "unlisted":
                continue
            assert unmet.value is not None and unmet.bound is not None
            bounds = {
                "provisional": views.at(facts.offset).provisional_rounds, "max_sigma": 120.0,
                "min_rounds": views.listing.min_rounds, "idle_days": views.listing.idle_days,
            }  # fmt: skip
            assert unmet.bound == bounds[unmet.rule]
            if unmet.rule == "idle_days":
                assert unmet.value == pytest.approx(days) and unmet.bound <= days
            elif unmet.rule == "max_sigma":
                assert unmet.value > unmet.bound
            else:
                assert unmet.value == facts.rounds
        if 0.0 < until_s < math.inf:
            assert rules.why_not_listed(views, facts, until_s) is not None
    assert seen == {None, "unlisted", "provisional", "min_rounds", "idle_days", "max_sigma"}


def test_many_at_once_are_listed_as_one_by_one() -> None:
    """The function of columns agrees with the moment."""
    rng = random.Random(2)
    dtype = [("rounds", "i8"), ("sigma", "f8"), ("time", "i8")]
    for _ in range(50):
        listing = msgspec.structs.replace(some_listing(rng), unlisted=("bot-*", "x"))
        views, facts = Views(listing, (), TERMS), [some_facts(rng) for _ in range(40)]
        names = [rng.choice(["bot-1", "x"]) if e.hidden else rng.choice("yb") for e in facts]
        facts = [each._replace(offset=15) for each in facts]
        facts = [each._replace(provisional=each.rounds < 5) for each in facts]
        header = np.array([(each.rounds, each.sigma, each.played_s) for each in facts], dtype)
        at_s = rng.uniform(0.0, 1e7)
        found = rules.listed(views, header, names, at_s, 15).tolist()
        assert found == [at_s < rules.listed_until(views, each) for each in facts]


def after_a_pause(config: RatingConfig, sigma: float, days: int) -> tuple[Floats, float]:
    """Returns the evidence of a duel after so many days; for Elo-MMR its first variance, too."""
    duel = read_round(config, *ranked([1, 2]), completed_at=day(days))
    wave = wave_among([duel], np.full(2, 1500.0), np.full(2, sigma))
    wave.last_time[:] -= days * DAY_S
    evidence = estimate(config, wave)
    if isinstance(config, EloMMR):
        return evidence[:, :DIFFUSION_VARIANCE], sigma**2 + float(evidence[0, DIFFUSION_VARIANCE])
    return evidence, 0.0


def test_the_sigma_of_today_is_that_of_the_next_round() -> None:
    """A pause is rated as today's sigma. Terms have the rule's provisional rounds."""
    configs: tuple[RatingConfig, ...] = (DRIFTING, TwoMoment())
    for config, days in itertools.product(configs, (0, 1, 30, 4000)):
        terms = Ladders(ladders={"*": Ladder(rating=config)}).views("x").terms[0]
        assert terms.provisional_rounds == rule_of(config).provisional_rounds
        today = rules.sigma_today(terms, 100.0, float(days))
        assert (today > 100.0) == (days > 0)
        paused, rested = after_a_pause(config, 100.0, days), after_a_pause(config, today, 0)
        np.testing.assert_allclose(paused[0], rested[0], rtol=1e-9)
        assert paused[1] == pytest.approx(rested[1], rel=1e-9), (config, days)


# --- tiers ----------------------------------------------------------------------------------------

BRONZE, SILVER = Tier(name="bronze"), Tier(name="silver", from_rating=1200.0, hysteresis=30.0)
GOLD = Tier(name="gold", from_rating=1500.0, hysteresis=rules.Protection(rounds=5))
LEAGUE = Views(tiers=(BRONZE, SILVER, GOLD))


def story(*events: tuple[float, int]) -> list[str]:
    """The tiers after events of a player, each with a rating and a number of rounds."""
    state: rules.TierState | None = None
    found = []
    for rating, rounds in events:
        state = rules.tier_after(LEAGUE, state, rating, rounds)
        assert state is not None
        found.append(state.tier)
    return found


def test_hysteresis() -> None:
    """A player stays down to the bound of points, and for five rounds after a promotion."""
    ratings = (1199.9, 1200.0, 1170.0, 1169.9, 1190.0, 1200.0)
    expected = ["bronze", "silver", "silver", "bronze", "bronze", "silver"]
    assert story(*((rating, 1) for rating in ratings)) == expected
    assert story((1600.0, 10), (1000.0, 11)) == ["gold", "bronze"]
    promoted = [(1300.0, 9), (1500.0, 10)]
    falling = [(1400.0, rounds) for rounds in (11, 15, 13, 15, 16)]
    assert story(*promoted, *falling) == ["silver", *["gold"] * 5, "silver"]
    again = story(*promoted, (1400.0, 15), (1600.0, 15), (1400.0, 16))
    assert again == ["silver", "gold", "gold", "gold", "silver"]


def test_tiers_of_a_rating() -> None:
    """Without hysteresis, the highest at or below it. A player of an absent tier begins again."""
    for rating, expected in ((-9e9, "bronze"), (1200.0, "silver"), (1499.9, "silver"),
                             (1500.0, "gold"), (9e9, "gold")):  # fmt: skip
        assert rules.tier_of(LEAGUE, rating) == expected
    assert rules.tier_of(NO_VIEWS, 1500.0) is None
    assert rules.tier_after(NO_VIEWS, None, 1500.0, 7) is None
    found = rules.tier_after(LEAGUE, rules.TierState("iron", 99), 1300.0, 7)
    assert found == rules.TierState("silver", rules.NOT_PROTECTED)
    written: Any = msgspec.to_builtins(LEAGUE.tiers)
    assert written[1] == {"name": "silver", "from": 1200.0, "hysteresis": 30.0}
    assert [each["name"] for each in written] == ["bronze", "silver", "gold"]
