"""Prints a digest of what kernels compute, a line for each part, for `arm64` to compare.

    python deploy/tools/containers/bits.py [KERNELS]

The parts are the elementary functions, every system's ratings of rounds without and with teams, and
the test vector of workers. The file KERNELS gets the kernels that ran, with their arguments' types.
"""

import hashlib
import pickle
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

import numpy as np

from stream_rater.columns import compiling
from stream_rater.rating import elementary, model, parameters, stages
from stream_rater.runtime import selfcheck

SIZES: Final = (2, 2, 3, *(7,) * 20, 60, 400)
"""The sides of each round of a wave. The sizes take different paths through stage 1."""
WAVES, PLAYERS = 5, 1300
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
        config, rule = system.sample(), stages.rule_of(system.sample())
        beliefs = model.newcomers(
            PLAYERS, rule.kept + 1 or 8, rule.initial_mu, rule.initial_sigma, coded=rule.kept > 0
        )
        for most in (1, 3):
            for day in range(WAVES):
                wave = a_wave(random, day, most)
                rows, ends = random.permutation(PLAYERS)[: len(wave.mu)], np.array([0, len(SIZES)])
                said = stages.rate_waves(config, beliefs, rows, wave, ends, np.arange(len(SIZES)))
            say(f"{tag}, sides of {most}", said[0], beliefs.header, beliefs.factors)
    print(f"test vector: {selfcheck.fingerprint()}", flush=True)
    for path in sys.argv[1:]:
        ran = {name: resolve_name(name).signatures for name in compiling.SharedCache.ready}
        Path(path).write_bytes(pickle.dumps(ran))


def say(part: str, *arrays: Any) -> None:
    """Print the digest of some arrays."""
    digest = hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in arrays))
    print(f"{part}: {digest.hexdigest()[:16]}", flush=True)


def a_wave(random: np.random.Generator, day: int, most: int) -> model.Wave:
    """Rounds with ties, of sides of one to `most` players. In the last round, 100 do not finish."""
    places = [
        sorted(1 + (i * 7 + (day + number) * 3) % max(size - 2, 2) for i in range(size))
        for number, size in enumerate(SIZES)
    ]
    place = np.concatenate(places).astype(np.int32)
    place[-100:] = model.DID_NOT_FINISH
    entry_starts = np.cumsum([0, *(1 + i % most for i in range(sum(SIZES)))])
    count = int(entry_starts[-1])
    return model.Wave(
        round_starts=np.cumsum([0, *SIZES]), weight=0.5 + random.random(len(SIZES)),
        ceiling=np.full(sum(SIZES), np.inf), time=np.full(len(SIZES), day * 86_400),
        place=place, entry_starts=entry_starts,
        share=1.0 - 0.5 * (np.arange(count) % most == 1), mu=np.zeros(count),
        sigma=np.zeros(count), rounds=np.zeros(count, np.int64),
        last_time=np.zeros(count, np.int64),
    )  # fmt: skip


if __name__ == "__main__":
    main()
