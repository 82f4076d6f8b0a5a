"""How much of the engine a lobby, a correction, a seed, a POST and a question go through."""

import pytest

from tests.one_lobby import crossed

MOST = {
    "lobby": {"files": 52, "forms": 14, "functions": 548},
    "correction": {"files": 70, "forms": 33, "functions": 666},
    "seed": {"files": 48, "forms": 14, "functions": 361},
    "post": {"files": 19, "forms": 6, "functions": 117},
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
