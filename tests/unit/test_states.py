"""The protocol's diagrams are drawn from its states."""

from enum import StrEnum
from pathlib import Path

from stream_rater.pipeline import states
from tests.builders.cases import cases

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "protocol.md"


@cases("transitions", [states.ESTIMATOR, states.UPDATER])
def test_the_page_shows_these_transitions(transitions: tuple[states.Transition, ...]) -> None:
    """docs/internals/protocol.md has the diagram that `mermaid` draws."""
    assert f"```mermaid\n{states.mermaid(transitions)}```\n" in PAGE.read_text()


@cases(
    ("kind", "transitions"),
    [(states.PartitionState, states.ESTIMATOR), (states.ShardState, states.UPDATER)],
)
def test_every_state_is_entered_and_left(
    kind: type[StrEnum], transitions: tuple[states.Transition, ...]
) -> None:
    """A table has no state that nothing leads to, or that nothing leaves."""
    assert {t.target for t in transitions} - {None} == set(kind)
    assert {t.source for t in transitions} - {None} == set(kind)
