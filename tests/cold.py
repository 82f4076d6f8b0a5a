"""`python -m tests.cold` prints names of kernels, one a line, that a worker still compiles after
`… selfcheck --all`, for rounds of other sizes, encodings and parameters."""

import sys
from collections.abc import Iterator

import msgspec
from numba.core.registry import CPUDispatcher

from stream_rater.cli import compile_kernels
from stream_rater.config.ladders import any_ladder
from stream_rater.rating.parameters import Elo, EloMMR, PairwiseElo, RatingConfig, Thurstone
from stream_rater.runtime import selfcheck
from stream_rater.runtime.engine import EmbeddedEngine
from tests.rounds import MSGPACK_HEADERS, as_json, as_msgpack, ranked

OTHERS = (
    EloMMR(beta=200.0, gamma=50.0, rho="inf", ties="split", newcomer_weights=(0.6,), history=64),
    Elo(learning_rate=((1000.0, 32.0), (2000.0, 16.0)), model="gaussian", anchor=1500.0),
    PairwiseElo(learning_rate=1.0, pairs="average", fixed=("p0",), floor=0.0),
    Thurstone(learning_rate=1.0, anchor=1500.0),
)
SIZES = (2, 2, 5, 60, 400)


def compiled() -> dict[str, int]:
    """By name of a kernel, the number of its compiled signatures."""
    return {
        f"{module}.{name}": len(found.signatures)
        for module in sorted(sys.modules)
        if module.startswith("stream_rater.")
        for name, found in vars(sys.modules[module]).items()
        if isinstance(found, CPUDispatcher) and found.py_func.__module__ == module
    }


def play(rating: RatingConfig) -> None:
    """Rate a few rounds one after the other, then some together."""
    engine = EmbeddedEngine(any_ladder(rating))
    for number, size in enumerate(SIZES):
        for encode, headers in ((as_json, []), (as_msgpack, MSGPACK_HEADERS)):
            name = f"{encode.__name__}-{number}"
            standings = ranked([1 + i // 2 for i in range(size)])
            engine.log.submit(0, encode(*standings, round_id=name), headers, received_s=2e9)
            engine.settle()
    for number, size in enumerate(SIZES):  # rounds that are read together
        engine.log.submit(
            0, as_json(*ranked(range(1, size + 1)), round_id=f"{number}"), received_s=2e9
        )
    engine.settle()
    assert not engine.log.rejected, msgspec.json.encode(engine.log.rejected[0].message)


def main() -> Iterator[str]:
    """The names of kernels that were compiled only when rounds were rated."""
    selfcheck.check()
    for rating in selfcheck.SYSTEMS:
        selfcheck.compile_for(rating)
    before = compiled()
    for rating in selfcheck.SYSTEMS:  # so that only what rounds need beyond this is reported
        compile_kernels.stage_1(rating)
        compile_kernels.stage_2(rating)
    for rating in (*selfcheck.SYSTEMS, *OTHERS):
        play(rating)
    yield from (name for name, forms in compiled().items() if forms > before.get(name, 0))


if __name__ == "__main__":
    print(*main(), sep="\n", end="")
