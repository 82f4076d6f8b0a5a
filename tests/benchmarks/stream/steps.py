"""Measures on which steps a worker spends its processor time. `python -m
tests.benchmarks.stream.steps run …` is the service with a stop watch around each step. The file
that $STEPS names gets the CPU seconds of each step, without those of steps within it."""

import atexit
import importlib
import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

FILE = "STEPS"
EVERY_S = 0.25

STEPS = {
    "consume": ["stream_rater.adapters.kafka.consumer:Input.poll"],
    "decode rounds": ["stream_rater.rounds.decoder:RoundDecoder.decode"],
    "validate rounds, names": ["stream_rater.pipeline.estimator.admission:Admission.read"],
    "choose a wave": ["stream_rater.pipeline.estimator.backlog:Backlog.wave"],
    "read priors": ["stream_rater.adapters.redis.store:RedisStore.read_priors"],
    "priors as columns": [
        "stream_rater.pipeline.estimator.estimation:fingerprints_by_shard",
        "stream_rater.pipeline.estimator.estimation:headers_of",
        "stream_rater.pipeline.estimator.estimation:classified",
    ],
    "look up beliefs": [
        "stream_rater.pipeline.estimator.priors:BeliefCache.find",
        "stream_rater.pipeline.estimator.priors:_FoundPriors.decoded",
    ],
    "stage 1": ["stream_rater.pipeline.estimator.estimation:estimate"],
    "write parts": ["stream_rater.pipeline.parts.schema:messages"],
    "send parts": ["stream_rater.adapters.kafka.producers:PartsProducer.scatter"],
    "finish rounds": ["stream_rater.pipeline.estimator.estimator:Estimator._was_sent"],
    "cache beliefs": ["stream_rater.pipeline.estimator.estimator:Estimator._cache_beliefs"],
    "decode parts": ["stream_rater.pipeline.parts.decoder:read_all"],
    "read beliefs": ["stream_rater.adapters.redis.store:RedisStore.read"],
    "stage 2": ["stream_rater.pipeline.updater.changes:compute_changes"],
    "write events": ["stream_rater.pipeline.updater.changes:encode_events"],
    "apply": ["stream_rater.adapters.redis.store:RedisStore.apply"],
    "send events": ["stream_rater.adapters.kafka.producers:Transactions.begin"],
    "commit": [
        "stream_rater.adapters.kafka.producers:Transactions.end",
        "stream_rater.adapters.kafka.producers:Transactions.run",
    ],
}  # fmt: skip
"""The functions of each step, by module and name."""


class Watch:
    """Seconds of processor time by step."""

    def __init__(self) -> None:
        self.spent_s = dict.fromkeys(STEPS, 0.0)
        self._within = threading.local()

    def around(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its own time counted for this step."""

        @wraps(function)
        def watched(*given: Any, **named: Any) -> Any:
            stack: list[float] = self._within.__dict__.setdefault("stack", [0.0])
            stack.append(0.0)
            began_s = time.thread_time()
            try:
                return function(*given, **named)
            finally:
                took_s = time.thread_time() - began_s
                self.spent_s[step] += took_s - stack.pop()
                stack[-1] += took_s

        return watched

    def install(self) -> None:
        """Put the watch around every step that this release has."""
        for step, places in STEPS.items():
            for place in places:
                module, _, name = place.partition(":")
                *path, last = name.split(".")
                with suppress(ModuleNotFoundError, AttributeError):  # another release has others
                    owner: Any = importlib.import_module(module)
                    for each in path:
                        owner = getattr(owner, each)
                    setattr(owner, last, self.around(step, getattr(owner, last)))

    def write(self, path: Path) -> None:
        """Write the times so far, atomically."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(self.spent_s))
        part.replace(path)

    def write_for_ever(self, path: Path) -> None:
        while True:
            self.write(path)
            time.sleep(EVERY_S)


def main() -> None:
    from stream_rater.cli import app

    watch, path = Watch(), Path(os.environ[FILE])
    watch.install()
    threading.Thread(target=watch.write_for_ever, args=(path,), daemon=True).start()
    atexit.register(watch.write, path)
    app.main()


if __name__ == "__main__":
    main()
