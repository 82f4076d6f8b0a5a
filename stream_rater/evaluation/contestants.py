"""The systems that are compared on games: ours, and other packages'."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from stream_rater.evaluation import peers, sides, spaces
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run
from stream_rater.evaluation.tuning import without_defaults
from stream_rater.rating.systems.dimension import LEVEL_PART, NEWCOMERS, Dimension


class System(Protocol):
    """A rating system that can be tuned and played."""

    @property
    def name(self) -> str:
        """Its own."""

    @property
    def space(self) -> tuple[Dimension, ...]:
        """What can be tuned."""

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""

    def play(self, sessions: Sequence[Session], config: Any) -> Run:
        """A season by this configuration."""

    def told(self, config: Any) -> dict[str, Any]:
        """A configuration as a table."""


LEFT_OUT = {"elo", "thurstone"}
"""Unless they are asked for. Elo is pairwise Elo, and the time that Thurstone takes grows with the
range of the ratings."""


@dataclass(frozen=True, slots=True)
class Ours:
    """One of our systems."""

    system: str
    placing: bool = False
    """Whether newcomers begin at their field's level, where the system's first guess has none."""

    @property
    def name(self) -> str:
        """Its own."""
        return f"{self.system}+newcomers" if self.placing else self.system

    @property
    def space(self) -> tuple[Dimension, ...]:
        """What can be tuned."""
        own = spaces.SPACES[self.system]
        return (*own, NEWCOMERS) if self.placing else own

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""
        fixed = {"newcomer_field": LEVEL_PART} if self.placing else {}
        return spaces.configuration(self.system, {**fixed, **values})

    def play(self, sessions: Sequence[Session], config: Any) -> Run:
        """A season by this configuration."""
        return sides.of_ours(sessions, config)

    def told(self, config: Any) -> dict[str, Any]:
        """A configuration as a table."""
        return without_defaults(config)


def compared(systems: Sequence[str]) -> list[Ours]:
    """Of our systems those to compare: the ones that are asked for, or all worth comparing. To the
    latter belongs TrueSkill with newcomers at their field's level, which shows what this alone
    gains."""
    if set(systems) != set(spaces.SPACES):
        return [Ours(each) for each in systems]
    return [
        *(Ours(each) for each in systems if each not in LEFT_OUT),
        Ours("trueskill", placing=True),
    ]


@dataclass(frozen=True, slots=True)
class Peer:
    """Another package's system."""

    name: str

    @property
    def space(self) -> tuple[Dimension, ...]:
        """What can be tuned."""
        return peers.SPACES[self.name]

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""
        return peers.PeerConfig(self.name, **values)

    def play(self, sessions: Sequence[Session], config: Any) -> Run:
        """A season by this configuration."""
        return peers.of_peer(sessions, config)

    def told(self, config: Any) -> dict[str, Any]:
        """A configuration as a table."""
        found: dict[str, Any] = msgspec.to_builtins(config)
        return found
