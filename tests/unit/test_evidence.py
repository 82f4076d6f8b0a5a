"""The paper's experiments again: how systems are tuned for them, and what the tables say."""

from dataclasses import replace

import pytest

from stream_rater.evaluation.accuracy import averages
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.research import evidence, figures
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.season import in_blocks
from tests.rounds import as_json, ranked
from tests.unit.test_season import sessions


def test_a_season_too_short_for_experience_is_tuned_by_all() -> None:
    """Where nobody has played five rounds in the first part, as in the paper's synth-large."""
    data = evidence.DataSet("short", list(season(Kind(40, 40, 40), 1)))
    found = evidence.tuned(data, "codeforces", 60)
    assert found.config != evidence.first_guess("codeforces")


@pytest.mark.parametrize("kind", [Kind(40, 40, 40), Kind(600, 50, 600)])
def test_a_short_first_part_tunes_nothing_to_an_end_of_its_range(kind: Kind) -> None:
    """As games are tuned: parameters leave their first guess only as far as the rounds say. Those
    that fit best are at an end here, and lose a point of order on the other rounds."""
    data = evidence.DataSet("short", list(in_blocks(season(kind, 1))))
    found = evidence.tuned(data, "codeforces", 60)
    assert found.at_ends == ()
    by_first_guess, tuned = (
        averages(evaluate(data.sessions, each).scored(evidence.TRAIN))["pair_inversion"]
        for each in (evidence.first_guess("codeforces"), found.config)
    )
    assert by_first_guess is not None and tuned is not None
    assert tuned > by_first_guess - 0.2


def test_what_ended_at_an_end_of_its_range_is_said() -> None:
    """In the table of accuracy, beside the figures that it made."""
    data = evidence.DataSet("mine", list(season(Kind(9, 12, 3), 1)))
    entries = evidence.accuracy(data, ["elo-mmr", "bar"], evidence.QUICK, None, lambda _: None)
    entries[1] = replace(entries[1], at_ends=("beta", "sigma_drift"))
    lines = figures.accuracy(entries, beside_paper=False)
    (line,) = (each for each in lines if each.startswith("| mine | bar |"))
    assert line.startswith("| mine | bar | beta, sigma_drift |")
    (other,) = (each for each in lines if each.startswith("| mine | elo-mmr |"))
    assert other.startswith("| mine | elo-mmr | – |")


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


def test_the_papers_figures_stand_beside_seasons_as_large_as_its_own() -> None:
    """In a column of their own, a dash where there is none."""
    data = evidence.DataSet("synth-large", list(season(Kind(9, 12, 3), 1)))
    effort = replace(evidence.QUICK, trials=1)
    entries = evidence.accuracy(data, ["elo-mmr", "bar"], effort, None, lambda _: None)
    printed = [
        line for line in figures.accuracy(entries, beside_paper=True) if line.startswith("| ")
    ]
    assert [line.rsplit("|", 2)[1] for line in printed] == [
        " paper ",
        " --- ",
        " 84.0 / 11.1 ",
        " – ",
    ]
