"""The systems that are compared on games: our own systems and those of other packages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from stream_rater.evaluation import spaces
from stream_rater.evaluation.fits import OwnSystem
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run
from stream_rater.rating.systems.common import Dimension
from tests.benchmarks.lab import peers

LEFT_OUT = {"elo", "thurstone"}
"""If asked for only: Elo is pairwise Elo; Thurstone's time grows with the ratings' range."""


def compared_systems(systems: Sequence[str]) -> list[OwnSystem]:
    """Those asked for; of all: without LEFT_OUT, with TrueSkill that places newcomers by field."""
    if set(systems) != set(spaces.SPACES):
        return [OwnSystem(each) for each in systems]
    return [
        *(OwnSystem(each) for each in systems if each not in LEFT_OUT),
        OwnSystem("trueskill", placing=True),
    ]


@dataclass(frozen=True, slots=True)
class PeerSystem:
    """A system of another package."""

    name: str

    @property
    def space(self) -> tuple[Dimension, ...]:
        """The dimensions that can be tuned."""
        return peers.SPACES[self.name]

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""
        return peers.peer_config(self.name, values)

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        """Rate a season with this configuration."""
        return peers.peer_run(sessions, config)

    def described(self, config: Any) -> dict[str, Any]:
        """The configuration as a table for a report."""
        found: dict[str, Any] = msgspec.to_builtins(config)
        return found
