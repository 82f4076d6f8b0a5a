"""The systems that can be tuned, and one of ours from its first guess."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from stream_rater.evaluation import sides, spaces
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run
from stream_rater.evaluation.tuning import without_defaults
from stream_rater.rating.systems.dimension import LEVEL_PART, NEWCOMERS, Dimension


class System(Protocol):
    """A rating system that can be tuned, and that can rate a season."""

    @property
    def name(self) -> str:
        """The name of the system."""

    @property
    def space(self) -> tuple[Dimension, ...]:
        """The dimensions that can be tuned."""

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        """Rate a season with this configuration."""

    def described(self, config: Any) -> dict[str, Any]:
        """The configuration as a table for a report."""


@dataclass(frozen=True, slots=True)
class OwnSystem:
    """One of our systems."""

    system: str
    placing: bool = False
    """Whether newcomers begin at the level of their field although the system's first guess does
    not place them."""
    fields: tuple[Dimension, ...] = ()
    """The dimensions of the optional fields that the rounds have."""
    wide: bool = False
    """Whether all dimensions of the system are tuned."""

    @property
    def name(self) -> str:
        """The name of the system, with "+newcomers" if newcomers are placed."""
        return f"{self.system}+newcomers" if self.placing else self.system

    @property
    def space(self) -> tuple[Dimension, ...]:
        """The dimensions that can be tuned."""
        space = spaces.WIDE if self.wide else spaces.SPACES
        own = (*space[self.system], *self.fields)
        return (*own, NEWCOMERS) if self.placing else own

    def on(self, sessions: Iterable[Session]) -> "OwnSystem":
        """The system, with the dimensions of the optional fields that these rounds have."""
        return replace(self, fields=spaces.field_dimensions(self.system, sessions))

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""
        fixed = {"newcomer_field": LEVEL_PART} if self.placing else {}
        return spaces.configuration(self.system, {**fixed, **values})

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        """Rate a season with this configuration."""
        return sides.own_run(sessions, config)

    def described(self, config: Any) -> dict[str, Any]:
        """The configuration as a table for a report."""
        return without_defaults(config)
