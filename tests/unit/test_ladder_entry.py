"""What is proposed for the ladders file is what the file then says, from the offset on."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.cli.tables import ladders_file_entry
from stream_rater.config.files import read_ladders
from stream_rater.config.ladders import (
    ANY_LADDER,
    DEFAULT_RATING,
    TEMPLATE,
    Change,
    Ladder,
    Ladders,
    Limits,
)
from stream_rater.rating.parameters import Elo, EloMMR, MinusSigma, RatingConfig, TrueSkill

OURS = EloMMR(weight_limit=0.1, sigma_limit=60.0)
NEWER = EloMMR(weight_limit=0.25, sigma_limit=90.0, rho="inf", display=MinusSigma(2.0),
               newcomer_weights=(0.6, 0.8), skip_all_tied=True, floor=1e-6)  # fmt: skip
RATING = 'rating = { system = "elo-mmr", weight_limit = 0.1, sigma_limit = 60 }\n'
"""OURS."""


def pasted(before: str, added: str, folder: Path) -> Ladders:
    """The ladders file with it."""
    path = folder / "ladders.toml"
    path.write_text(f"{before}\n# why\n{added}")
    return read_ladders(path)


def file_of(name: str, more: str = "") -> str:
    return f"[ladders.{name}]\n{RATING}{more}"


@pytest.mark.parametrize("key", ["ranked-eu", '"ranked eu"', '"a.b"', '"ümlaut \\" \\\\ \\u007f"'])
def test_a_ladder_of_the_file_changes(key: str, tmp_path: Path) -> None:
    """From the offset on, whatever its name; not before, and no other table changes."""
    before = file_of(key)
    ladders = msgspec.convert(tomllib.loads(before), Ladders)
    (name,) = ladders.ladders
    found = pasted(before, ladders_file_entry(ladders, name, NEWER, 700, named=True), tmp_path)
    assert found.ladders == {name: Ladder(
        rating=OURS, changes=(Change(from_offset=700, rating=NEWER),)
    )}  # fmt: skip


def test_a_change_comes_after_those_there_are(tmp_path: Path) -> None:
    """Even if they are further ahead."""
    before = file_of(
        "l", "[[ladders.l.changes]]\nfrom_offset = 900\nlimits = { max_entries = 9 }\n"
    )
    ladders = msgspec.convert(tomllib.loads(before), Ladders)
    for offset, due in ((700, 901), (900, 901), (1000, 1000)):
        found = pasted(
            before, ladders_file_entry(ladders, "l", NEWER, offset, named=True), tmp_path
        )
        assert [each.from_offset for each in found.ladders["l"].changes] == [900, due]
        terms = found.find("l", due)
        assert terms is not None and (terms.rating, terms.limits.max_entries) == (NEWER, 9)


def test_a_ladder_of_the_template_gets_a_table(tmp_path: Path) -> None:
    """From the offset on, with the template's limits; other ladders stay with the template."""
    limits = Limits(max_entries=9, unknown_fields="reject")
    ladders = Ladders(ladders={TEMPLATE: Ladder(rating=OURS, limits=limits)})
    before = file_of('"*"') + 'limits = { max_entries = 9, unknown_fields = "reject" }\n'
    found = pasted(before, ladders_file_entry(ladders, "l", NEWER, 700, named=True), tmp_path)
    assert found.ladders["l"] == Ladder(rating=NEWER, limits=limits, from_offset=700)
    assert found.find("l", 699) == found.find("m") == ladders.find("m")
    usual = Ladders(ladders={TEMPLATE: Ladder(rating=OURS)})
    assert "limits" not in ladders_file_entry(usual, "l", NEWER, 700, named=True)


def test_without_a_file_it_is_a_whole_one(tmp_path: Path) -> None:
    """With the parameters that hold for all others."""
    found = pasted("", ladders_file_entry(ANY_LADDER, "l", NEWER, 700, named=False), tmp_path)
    assert found == Ladders(
        ladders={TEMPLATE: Ladder(rating=DEFAULT_RATING),
                 "l": Ladder(rating=NEWER, from_offset=700)}
    )  # fmt: skip


def test_another_system_is_a_ladder_of_its_own(tmp_path: Path) -> None:
    """With another name, from the first offset on."""
    other: RatingConfig = TrueSkill(beta=300.0, sigma_drift=35.0, draw_margin=1.0)
    ladders = Ladders(ladders={"l": Ladder(rating=OURS)})
    found = pasted(file_of("l"), ladders_file_entry(ladders, "l", other, 700, named=True), tmp_path)
    assert found.ladders == {"l": Ladder(rating=OURS), "l-trueskill": Ladder(rating=other)}


def test_tables_of_values_are_reported(tmp_path: Path) -> None:
    """Rates by rating, and players by name."""
    rating: Any = Elo(learning_rate=((1000.0, 40.0), (2000.0, 20.0)), fixed=('b"t', "ü\x7f"))
    ladders = Ladders(ladders={"l": Ladder(rating=Elo(learning_rate=30.0))})
    before = '[ladders.l]\nrating = { system = "elo", learning_rate = 30 }\n'
    found = pasted(before, ladders_file_entry(ladders, "l", rating, 700, named=True), tmp_path)
    assert found.ladders["l"].changes == (Change(from_offset=700, rating=rating),)
