"""Compiles the kernels, and checks that this machine computes the same bits as all others. Each
worker does so at its start. `python -m stream_rater.runtime.selfcheck` does it for Elo-MMR, and
with `--all` for every system. `cli.compile_kernels` compiles with more processes."""

import compileall
import hashlib
import math
import platform
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from llvmlite import binding as llvm

from stream_rater.adapters.redis import encoding
from stream_rater.columns import compiling, kernels, player_column, sharding, strings
from stream_rater.config import errors, ladders
from stream_rater.contract.record import Record
from stream_rater.pipeline.updater import changes
from stream_rater.rating import parameters, record, seasons
from stream_rater.rating.parameters import EloMMR, RatingConfig, Season
from stream_rater.replay.pool import Pool
from stream_rater.rounds import depth
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.runtime.engine import EmbeddedEngine

EXPECTED = "44b6b7e51aedeec7"  # The fingerprint; it depends on KERNEL_VERSION and the rounds.


SYSTEMS: Final[tuple[RatingConfig, ...]] = tuple(
    each.sample() for each in parameters.SYSTEMS.values()
)
"""A configuration of each rating system. Its other parameters do not affect the kernels."""
SMALL_ROUNDS, LARGER_ROUNDS = 20, (60, 2000)
"""The number of small rounds in the test vector, and the numbers of players of the larger rounds
after them. The three sizes take different paths through stage 1."""
SEASON, SEASON_STARTS = Season(1, 0.5, 150.0), 12  # A season, and the round before which it starts.


def _round(number: int, players: int = 7) -> bytes:
    """A deterministic round with ties, a team, a share and a player who did not finish."""
    ranks = [1 + (i * 7 + number * 3) % (players - 2) for i in range(players)]
    solo = [f'{{"player":"p{i}","rank":{rank}}}' for i, rank in enumerate(ranks)]
    team = '{"team":["t0","t1"],"shares":[1,0.5],"rank":2}'
    dnf = '{"player":"gone","dnf":true}'
    return (
        f'{{"round_id":"r{number}","ladder":"x","completed_at":"2026-01-{1 + number:02}T00:00:00Z",'
        f'"weight":{1.0 + 0.25 * (number % 3)},"standings":[{",".join([*solo, team, dnf])}]}}'
    ).encode()


def _usual_round(number: int) -> bytes:
    """A round of the usual form, with two players of `_round`."""
    return (
        f'{{"round_id":"u{number}","ladder":"x","completed_at":"2026-01-31T00:00:00Z",'
        '"standings":[{"player":"p0","rank":1},{"player":"p1","rank":2}]}'
    ).encode()


def fingerprint() -> str:
    """A hash of every bit of the kernel version, the evidence of some rounds, the beliefs after
    them, and these beliefs after a new season."""
    config = EloMMR(
        weight_limit=0.2, sigma_limit=80.0, rho=0.5, drift_per_day=3.0, newcomer_weights=(0.6,),
        history=4,
    )  # fmt: skip
    decoder, pool = RoundDecoder(ladders.any_ladder(config)), Pool(config)
    digest = hashlib.sha256(bytes([kernels.KERNEL_VERSION]))
    for number, size in enumerate([*SMALL_ROUNDS * (7,), *LARGER_ROUNDS]):
        if number == SEASON_STARTS:
            pool.start_season(SEASON)
        record_ = Record(0, number, _round(number, size), received_s=math.inf)
        rated = pool.rate(decoder.read(record_), number)
        assert rated is not None
        digest.update(rated[1].tobytes())
    for player, _ in pool:
        digest.update(pool.belief_bytes(player))
    pool.start_season(SEASON)
    for column in seasons.seen(pool.rule, pool.headers(np.arange(len(pool)))):
        digest.update(column.tobytes())
    digest.update(sharding.shards_of(["a", "abcd", "Straße"], 1000).tobytes())
    depth.json_depth(b"[]", 0)  # the kernel, which small rounds do not need
    strings.StringColumn.concat([strings.StringColumn.of(["a", "b"])])  # for messages in both forms
    encoding.encode_reads(0, player_column.PlayerColumn.of([("x", "a")]), 50)
    encoding.encode_writes(0, player_column.BeliefColumn.of([(("x", "a"), b"a")]), 50)
    digest.update(bytes([depth.msgpack_depth(b"\x91\x91\x01", 16)]))
    return digest.hexdigest()[:16]


def check() -> None:
    """Raise ArithmeticMismatch if this machine's arithmetic differs."""
    found = fingerprint()
    if found != EXPECTED:
        raise errors.ArithmeticMismatch(
            f"the kernels' test vector is {found} here, this release expects {EXPECTED}: ratings "
            "would differ from other workers'; do not mix this machine with them"
        )


def slow_processor() -> str | None:
    """A warning for operators if this processor is slow for our kernels; otherwise None."""
    if platform.machine() != "x86_64" or llvm.get_host_cpu_features().get("fma", True):
        return None
    return (
        "this processor has no fused multiply-add (or the virtual machine hides it): ratings are "
        "right, but take some 400 times as long; run on one with AVX2 and FMA"
    )


def compile_for(rating: RatingConfig) -> None:
    """Compile all kernels of both state machines for a configuration, by rating a few rounds."""
    engine = EmbeddedEngine(ladders.any_ladder(rating))
    for number in range(6):
        for value in (_round(number), _usual_round(number)):
            engine.log.submit(0, value, received_s=math.inf)
        if number not in (3, 4):
            engine.settle()
    stored = [data for beliefs in engine.store.beliefs.values() for data in beliefs.values()]
    notes = np.frombuffer(b"", changes.EARLIER)
    changes.headers_after(record.headers_of(stored), np.zeros(0, np.int64), notes)  # after a crash
    record.header_bytes(stored)  # in a data file


def compile_for_full_histories() -> None:
    """Compile stage 2 also for full histories, which no record stores."""
    config = msgspec.structs.replace(SYSTEMS[0], history="full")
    decoder, pool = RoundDecoder(ladders.any_ladder(config)), Pool(config)
    pool.rate(decoder.read(Record(0, 0, _round(0), received_s=math.inf)), 0)


def write_bytecode() -> None:
    """Write the modules' bytecode beside them, if that directory is writable: else every start
    takes a tenth of a second longer under PYTHONDONTWRITEBYTECODE, which many containers set."""
    compileall.compile_dir(Path(__file__).parents[1], quiet=2)


def main() -> None:
    """Check, then compile for Elo-MMR; with `--all` for every system, and print each one's time."""
    compiling.on_stderr()
    write_bytecode()
    check()
    if "--all" not in sys.argv[1:]:
        compile_for(SYSTEMS[0])
        compile_for_full_histories()
        return
    for rating in SYSTEMS:
        began_s = time.perf_counter()
        compile_for(rating)
        print(f"{rating.__struct_config__.tag}: {time.perf_counter() - began_s:.2f} s")


if __name__ == "__main__":
    main()
