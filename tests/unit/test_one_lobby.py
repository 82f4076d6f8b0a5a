"""How much of the engine one lobby crosses: what a reader must carry to follow it."""

from tests.one_lobby import crossed

MOST = {"files": 55, "forms": 14, "functions": 554}
"""A bar that is lowered with the figures. Raised six times: `Arrivals` spares records for the
lines of a file, the driver in memory also drives a data file, both roles have a table of the
records that they need not read, rounds have seats and sides of any size (`levels`), first notes
of ladders say that a ladder is unknown (`to_note`), and rounds of many ties are warned of."""


def test_one_lobby_crosses_few_files_forms_and_functions() -> None:
    """A lobby of five stays below the bar, from its record to its events."""
    found = crossed()
    assert {name: found[name] for name, most in MOST.items() if len(found[name]) > most} == {}
    assert found["forms"], "a lobby has at least one form"
