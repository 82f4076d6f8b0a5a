"""What an operator does about hanging transactions while a scene recovers."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Self

import msgspec

from tests.chaos.hanging import Hanging, end, find_hanging, is_to_be_committed
from tests.chaos.scene import Outcome, Scene
from tests.waits import Watch


class Freed(Outcome, frozen=True, kw_only=True):
    """An outcome with what an operator had to do."""

    freed: int
    """The number of hanging transactions that an operator ended."""

    @classmethod
    def of(cls, outcome: Outcome, found: Sequence[object]) -> Self:
        """An outcome, and these transactions."""
        return cls(**msgspec.structs.asdict(outcome), freed=len(found))


def freed(scene: Scene) -> Iterator[Hanging]:
    """Wait until all rounds are rated, and end transactions that hang until then, as they had been
    decided. Yields them."""
    kafka = scene.kafka[0].address
    older_s = 2.0 * scene.settings.transaction_timeout_ms / 1000.0
    finished = scene.season.finished
    watch = Watch(f"{scene.name}: all is rated, and no transaction hangs", finished.moves)
    while not finished():
        watch.look()
        scene.crew.tend()
        for each in find_hanging(kafka, older_s):
            commit = is_to_be_committed(kafka, each)
            sys.stderr.write(f"{scene.name}: {each}, to be committed: {commit}\n")
            end(kafka, each, commit=bool(commit))
            yield each
        time.sleep(0.5)
