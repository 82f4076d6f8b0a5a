"""Compile the kernels now, and check that this machine computes the bits that all others do.

`python -m stream_rater.runtime.selfcheck` is part of `make setup`. Workers then start with compiled
code for Elo-MMR, offline commands also for its full histories, and all commands with bytecode.
With `--all`, which an image's build uses, it compiles every system, but not full histories. Each
worker runs `check` at its start.
"""

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
from stream_rater.columns import compile_progress
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.config.errors import OtherBits
from stream_rater.config.ladders import Ladder, one_ladder
from stream_rater.contract.record import Record
from stream_rater.rating import parameters, seasons
from stream_rater.rating.parameters import EloMMR, RatingConfig, Season
from stream_rater.replay.pool import Pool
from stream_rater.rounds import depth
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.runtime import embedded

EXPECTED = "ee64110e779aa1cd"
"""What `fingerprint` gives on every machine; it changes with KERNEL_VERSION and with the rounds."""


SYSTEMS: Final[tuple[RatingConfig, ...]] = tuple(
    each.sample() for each in parameters.SYSTEMS.values()
)
"""One of each; whatever else their parameters are, the kernels are the same."""


SMALL_ROUNDS, LARGER_ROUNDS = 20, (60, 2000)
"""How many rounds of a few players the test vector has, and the sizes of those after them: each
takes another way through stage 1."""

SEASON, SEASON_STARTS = Season(1, 0.5, 150.0), 12
"""One that starts before the round of that number."""


def _round(number: int, players: int = 7) -> bytes:
    """A round with ties, a team, a share and one who did not finish; deterministic."""
    ranks = [1 + (i * 7 + number * 3) % (players - 2) for i in range(players)]
    solo = [f'{{"player":"p{i}","rank":{rank}}}' for i, rank in enumerate(ranks)]
    team = '{"team":["t0","t1"],"shares":[1,0.5],"rank":2}'
    gone = '{"player":"gone","dnf":true}'
    return (
        f'{{"round_id":"r{number}","ladder":"x","completed_at":"2026-01-{1 + number:02}T00:00:00Z",'
        f'"weight":{1.0 + 0.25 * (number % 3)},"standings":[{",".join([*solo, team, gone])}]}}'
    ).encode()


def _record(number: int, players: int) -> Record:
    """A record of that round, which came in time."""
    return Record(0, number, _round(number, players), received_s=math.inf)


def _usual_round(number: int) -> bytes:
    """One as nearly all are, with players of `_round`'s."""
    return (
        f'{{"round_id":"u{number}","ladder":"x","completed_at":"2026-01-31T00:00:00Z",'
        '"standings":[{"player":"p0","rank":1},{"player":"p1","rank":2}]}'
    ).encode()


def fingerprint() -> str:
    """A hash of the version, a few rounds' evidence, the beliefs after them and how a season draws
    these: of every bit."""
    config = EloMMR(
        weight_limit=0.2, sigma_limit=80.0, rho=0.5, drift_per_day=3.0, newcomer_weights=(0.6,),
        history=4,
    )  # fmt: skip
    decoder, pool = RoundDecoder(one_ladder(config)), Pool(Ladder(rating=config))
    digest = hashlib.sha256(bytes([KERNEL_VERSION]))
    for number, size in enumerate([*SMALL_ROUNDS * (7,), *LARGER_ROUNDS]):
        if number == SEASON_STARTS:
            pool.start_season(SEASON)
        rated = pool.rate(decoder.read(_record(number, size)), number)
        assert rated is not None
        digest.update(rated[1].tobytes())
    for player, _ in pool:
        digest.update(pool.belief_bytes(player))
    pool.start_season(SEASON)
    for column in seasons.seen(pool.rule, pool.headers(np.arange(len(pool)))):
        digest.update(column.tobytes())
    digest.update(shards_of(["a", "abcd", "Straße"], 1000).tobytes())
    depth.json_depth(b"[]", 0)  # the kernel, which small rounds do not need
    StringColumn.concat([StringColumn.of(["a", "b"])])  # as of messages in both forms
    encoding.reads(0, PlayerColumn.of([("x", "a")]), 50)
    encoding.writes(0, BeliefColumn.of([(("x", "a"), b"a")]), 50)
    digest.update(bytes([depth.msgpack_depth(b"\x91\x91\x01", 16)]))
    return digest.hexdigest()[:16]


def check() -> None:
    """Raise OtherBits where this machine's arithmetic differs."""
    found = fingerprint()
    if found != EXPECTED:
        raise OtherBits(
            f"the kernels' test vector is {found} here, this release expects {EXPECTED}: ratings "
            "would differ from other workers'; do not mix this machine with them"
        )


def warning() -> str | None:
    """What an operator should know of this processor, if anything."""
    if platform.machine() != "x86_64" or llvm.get_host_cpu_features().get("fma", True):
        return None
    return (
        "this processor has no fused multiply-add (or the virtual machine hides it): ratings are "
        "right, but take some 400 times as long; run on one with AVX2 and FMA"
    )


def compile_for(rating: RatingConfig) -> None:
    """All that both machines call for a ladder of this kind: a few rounds, one after the other."""
    engine = embedded.Engine(one_ladder(rating))
    for number in range(3):
        for value in (_round(number), _usual_round(number)):
            engine.log.submit(0, value, received_s=math.inf)
        engine.settle()


def compile_for_full_histories() -> None:
    """Stage 2 once more, for beliefs that no record is to hold: offline commands, and tests."""
    config = msgspec.structs.replace(SYSTEMS[0], history="full")
    decoder, pool = RoundDecoder(one_ladder(config)), Pool(Ladder(rating=config))
    pool.rate(decoder.read(_record(0, 7)), 0)


def keep_bytecode() -> None:
    """Keep the modules' bytecode beside them, where one may write there.

    Without it every start of a command compiles them: a tenth of a second. Python keeps it of its
    own accord, but not under PYTHONDONTWRITEBYTECODE, which many containers and shells set.
    """
    compileall.compile_dir(Path(__file__).parents[1], quiet=2)


def main() -> None:
    """Check, then compile for Elo-MMR, or for every system and tell how long each took."""
    compile_progress.on_stderr()
    keep_bytecode()
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
