"""How much of the engine a lobby, a correction, a seed, a POST and a question go through."""

import pytest

from tests.one_lobby import crossed

MOST = {
    "lobby": {"files": 50, "forms": 13, "functions": 547},
    "correction": {"files": 65, "forms": 32, "functions": 657},
    "seed": {"files": 46, "forms": 14, "functions": 360},
    "post": {"files": 18, "forms": 5, "functions": 117},
    "question": {"files": 11, "forms": 3, "functions": 40},
}
"""The most that each may go through. It is lowered with the figures."""


@pytest.mark.parametrize("road", MOST)
def test_a_road_crosses_few_files_forms_and_functions(road: str) -> None:
    """A record on its way to events, or a request to an answer, stays below the bar."""
    found = crossed(road)
    assert {name: len(found[name]) for name, most in MOST[road].items()
            if len(found[name]) > most} == {}  # fmt: skip
    assert found["forms"], "something of ours carries the data"
