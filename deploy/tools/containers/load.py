"""Rounds that arrive steadily while something is done to the service, and what came of each."""

import json
import os
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from containers.report import Failed
from demonstration.figures import Phase
from demonstration.programs import GAME_BACKEND, DemoFailed, output_of
from examples.matchmaking import TOPIC, Ratings

CHUNK_S: Final = 4.0
"""Each backend reports rounds for so long. New ones follow until enough was seen."""
ARRIVE_S: Final = 120.0
POLL_S: Final = 0.1


@dataclass
class Load:
    """Reports rounds within a block, and follows every rating change."""

    kafka: str
    folder: Path
    per_second: float = 20.0
    rounds: int = 0
    expected: int = 0
    phase: Phase = field(default_factory=lambda: Phase(2.0))
    _stop: threading.Event = field(default_factory=threading.Event)
    _ready: threading.Event = field(default_factory=threading.Event)
    _reported: threading.Event = field(default_factory=threading.Event)
    _error: Exception | None = None

    def __enter__(self) -> Self:
        self._follower = threading.Thread(target=self._follow)
        self._backend = threading.Thread(target=self._report)
        self._follower.start()
        if not self._ready.wait(60.0):
            raise Failed(f"rating-changed cannot be followed: {self._error}")
        self._backend.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._backend.join()
        self._follower.join()

    def finish(self) -> str:
        """Stop, and wait for all changes. Returns a summary; Failed if any was lost or doubled."""
        self.__exit__(None, None, None)
        if self._error is not None:
            raise Failed(str(self._error))
        lost, twice = self.expected - len(self.phase.seen), self.phase.twice
        p50, p99 = (self.phase.percentile_ms(each) for each in (50, 99))
        text = (
            f"{self.rounds} rounds, {self.expected} changes: {lost} lost, {twice} doubled; "
            f"p50 {p50:.0f} ms, p99 {p99:.0f} ms"
        )
        if lost or twice or not self.expected:
            raise Failed(text)
        return text

    def _report(self) -> None:
        number = int(time.time())  # so that no two chunks have the same rounds
        try:
            while not self._stop.is_set():
                count = round(CHUNK_S * self.per_second)
                command = [*GAME_BACKEND, "--kafka", self.kafka, "--rounds", str(count)]
                command += ["--per-second", str(self.per_second), "--first", str(number)]
                text = output_of("backend", command, self.folder, dict(os.environ), 90.0)
                counts: dict[str, int] = json.loads(text)
                number += counts["rounds"]
                self.rounds += counts["rounds"]
                self.expected += counts["rating_changes_expected"]
        except DemoFailed as error:
            self._error = Failed(" ".join([str(error), *error.tail]))
        finally:
            self._reported.set()

    def _follow(self) -> None:
        try:
            with closing(Ratings(self.kafka, TOPIC)) as ratings:
                ratings.catch_up()
                self._ready.set()
                deadline_s = float("inf")
                while time.monotonic() < deadline_s:
                    self.phase.take(ratings.poll(POLL_S), time.time())
                    if self._reported.is_set():
                        deadline_s = min(deadline_s, time.monotonic() + ARRIVE_S)
                        if len(self.phase.seen) >= self.expected:
                            break
                time.sleep(1.0)  # a change that comes twice would come now
                self.phase.take(ratings.poll(POLL_S), time.time())
        except Exception as error:  # raised again by the thread that waits
            self._error = error
