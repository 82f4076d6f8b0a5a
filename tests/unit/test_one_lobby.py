"""How much of the engine one lobby, correction, seed, POST and question cross."""

import pytest

from tests.one_lobby import crossed

MOST = {
    "lobby": {"files": 52, "forms": 14, "functions": 549},
    "correction": {"files": 73, "forms": 32, "functions": 640},
    "seed": {"files": 49, "forms": 13, "functions": 358},
    "post": {"files": 19, "forms": 6, "functions": 117},
    "question": {"files": 11, "forms": 3, "functions": 40},
}
"""Bars that are lowered with the figures."""


@pytest.mark.parametrize("road", MOST)
def test_a_road_crosses_few_files_forms_and_functions(road: str) -> None:
    """It stays below the bar, from the record to the events, or from a request to the answer."""
    found = crossed(road)
    assert {name: len(found[name]) for name, most in MOST[road].items()
            if len(found[name]) > most} == {}  # fmt: skip
    assert found["forms"], "something of ours carries the data"
