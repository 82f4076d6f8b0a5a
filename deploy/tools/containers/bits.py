"""Prints a digest of what kernels compute, a line for each part, for `arm64` to compare.

    python deploy/tools/containers/bits.py [--all]

The parts are the elementary functions, and both stages of the systems that the documents use, or
with `--all` of every system. It decodes no round: a decoder computes with whole numbers alone.
"""

import hashlib
import sys
from typing import Any, Final

import numpy as np

from stream_rater.columns import compiling
from stream_rater.rating import elementary, model, parameters, stages

SIZES: Final = (2, 2, 3, *(7,) * 20, 60, 400)
"""The players of each round. The sizes take different paths through stage 1."""
USUAL: Final = ("elo-mmr", "two-moment")
ELEMENTARY: Final = (
    elementary.exp, elementary.quick_exp, elementary.log, elementary.quick_log,
    elementary.inverse_root, elementary.tanh, elementary.quick_tanh,
)  # fmt: skip


def main() -> None:
    """Print all lines, each as soon as it is known."""
    compiling.on_stderr()
    random = np.random.Generator(np.random.PCG64(1))  # Its doubles are whole numbers over 2^53.
    for function in ELEMENTARY:
        say(function.__name__, [function(float(x)) for x in 20.0 * random.random(2000)])
    for tag, system in parameters.SYSTEMS.items():
        wave = a_wave(random)
        if tag not in USUAL and "--all" not in sys.argv[1:]:
            continue
        config, count = system.sample(), len(wave.mu)
        rule, everybody = stages.rule_of(config), np.arange(count)
        evidence = stages.estimate(config, wave)
        say(f"{tag}, evidence", evidence)
        beliefs = model.newcomers(
            count, rule.kept + 1 or 8, rule.initial_mu, rule.initial_sigma, coded=rule.kept > 0
        )
        stages.update(beliefs, everybody, evidence, [rule], np.zeros_like(everybody))
        say(f"{tag}, beliefs", beliefs.header, beliefs.factors)


def say(part: str, *arrays: Any) -> None:
    """Print the digest of some arrays."""
    digest = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in arrays))
    print(f"{part}: {digest.hexdigest()[:16]}", flush=True)


def a_wave(random: np.random.Generator) -> model.Wave:
    """Rounds with ties, of players with other ratings each, who have played before or not."""
    starts = np.cumsum([0, *SIZES])
    places = [
        sorted(1 + (i * 7 + number * 3) % max(size - 2, 2) for i in range(size))
        for number, size in enumerate(SIZES)
    ]
    count = int(starts[-1])
    return model.Wave(
        round_starts=starts, weight=0.5 + random.random(len(SIZES)),
        ceiling=np.full(count, np.inf), time=np.arange(len(SIZES)) * 86_400,
        place=np.concatenate(places).astype(np.int32), entry_starts=np.arange(count + 1),
        share=np.ones(count), mu=1200.0 + 600.0 * random.random(count),
        sigma=60.0 + 200.0 * random.random(count), rounds=np.arange(count) % 9,
        last_time=np.zeros(count, np.int64),
    )  # fmt: skip


if __name__ == "__main__":
    main()
