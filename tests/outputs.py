"""`python -m tests.outputs FOLDER` prints digests of what a process stores, sends and shows: parts,
events, rejections, beliefs, and the output of `rate --records`. The first line is the hash of a
name under the process's secret key. Where an updater's calls begin and end is left out, since it
depends on time and on the key."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from stream_rater.cli import app
from stream_rater.columns.strings import StringColumn
from stream_rater.runtime.engine import EmbeddedEngine
from tests.rounds import MSGPACK_HEADERS, as_json, as_msgpack, ranked

LADDERS = 12
SIZES = (2, 5, 33, 60, 400, 5, 2)  # Entries of each ladder's rounds; over 32 go to `are_distinct`.
LARGER_THAN_A_WAVE = 20_500


def crowd(ladder: int, number: int, size: int) -> list[dict[str, Any]]:
    """Standings of players with ids of all lengths, many of whom play in other rounds, too."""
    names = [f"{'name' * (i % 9)}{(i * (1 + number)) % 1009}" for i in range(size)]
    return ranked([1 + (i * 7 + ladder) % size for i in range(size)], names)


def rounds() -> Iterator[bytes]:
    """Usual rounds, rounds of teams, and invalid ones: a player twice in one, and a round twice."""
    for number, size in enumerate(SIZES):
        for ladder in range(LADDERS):
            fields = {"ladder": f"ladder-{ladder}", "round_id": f"r{number}"}
            lines = crowd(ladder, number, size)
            if number == 1:
                lines.append({"team": ["ann", "bob"], "shares": [1, 0.5], "rank": 2})
            if number in (2, 3) and ladder == 5:
                lines[-1]["player"] = lines[0]["player"]
            yield as_json(*lines, **fields)
            if ladder == 7:
                yield as_json(*lines, **fields)
    yield as_json(*ranked(range(1, LARGER_THAN_A_WAVE + 1)), round_id="large", ladder="ladder-0")


def streamed() -> EmbeddedEngine:
    """An engine that has rated the rounds: first many in JSON at once, then some in MessagePack."""
    engine = EmbeddedEngine()
    for value in rounds():
        engine.log.submit(0, value, received_s=2e9)
    engine.settle()
    for number, size in enumerate(SIZES):
        value = as_msgpack(*crowd(1, number, size), round_id=f"m{number}", ladder="ladder-1")
        engine.log.submit(0, value, MSGPACK_HEADERS, received_s=2e9)
    engine.settle()
    return engine


def rated(folder: Path) -> bytes:
    source, out = folder / "rounds.jsonl", folder / "rated.jsonl"
    source.write_bytes(b"\n".join(rounds()))
    with suppress(SystemExit):  # since some rounds are invalid
        app.main(["rate", str(source), "--records", "--out", str(out)])
    return out.read_bytes()


def main(folder: Path) -> Iterator[str]:
    yield f"hash {StringColumn.of(['ann']).hashes.item()}"
    engine = streamed()
    log, store = engine.log, engine.store
    outputs: dict[str, Sequence[object]] = {
        "parts": [[part.value for part in shard] for shard in log.parts],
        "events": log.changed,
        "rejections": log.rejected,
        "positions": [
            (shard, each.applied, each.tail) for shard, each in sorted(store.positions.items())
        ],
        "beliefs": [sorted(shard.items()) for _, shard in sorted(store.beliefs.items())],
        "rated": rated(folder).splitlines(),
    }
    for name, output in outputs.items():
        digest = hashlib.sha256(msgspec.msgpack.encode(output)).hexdigest()
        items = sum(len(each) if isinstance(each, list) else 1 for each in output)
        yield f"{name}: {items}, {digest}"


if __name__ == "__main__":
    print(*main(Path(sys.argv[1])), sep="\n")
