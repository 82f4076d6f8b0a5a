"""The protocol's diagrams are drawn from its states."""

from pathlib import Path

from stream_rater.pipeline import states

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "protocol.md"


def test_the_page_shows_the_transitions() -> None:
    """docs/internals/protocol.md has the diagrams that `mermaid` draws. A table has no state that
    nothing leads to, or that nothing leaves."""
    for kind, transitions in (
        (states.PartitionState, states.ESTIMATOR), (states.ShardState, states.UPDATER)
    ):  # fmt: skip
        assert f"```mermaid\n{states.mermaid(transitions)}```\n" in PAGE.read_text()
        assert {t.target for t in transitions} - {None} == set(kind)
        assert {t.source for t in transitions} - {None} == set(kind)
