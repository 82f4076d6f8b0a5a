"""Posts rounds one at a time at a steady rate, whatever the answers do. Times count from when a
post was due."""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats
from tests.benchmarks.stream.rounds import Round

CONNECTIONS = 16
STEADY = 0.2
"""Posts of this first part of the time are not counted."""
TIMEOUT_S = 60.0


class Posted(NamedTuple):
    """What became of the posts."""

    due_s: dict[str, float]
    """When each round was due, Unix seconds."""
    answered_s: Floats
    """(n,) how long each answer took that counts, in seconds."""

    def quantile_ms(self, share: float) -> float:
        """The time in ms that this share of the answers did not exceed."""
        return 1000.0 * float(np.quantile(self.answered_s, share, method="inverted_cdf"))


def post(
    url: str, path: str, rounds: Sequence[Round], per_second: float, token: str = ""
) -> Posted:
    """Post each round to this path, in which `{ladder}` is its ladder. AssertionError if an answer
    is no 202."""
    return asyncio.run(_post(int(url.rpartition(":")[2]), path, rounds, per_second, token))


async def _post(
    port: int, path: str, rounds: Sequence[Round], per_second: float, token: str
) -> Posted:
    due = asyncio.Queue[tuple[Round, float] | None]()
    begin_s = time.time() + 0.1
    due_s = {each.round_id: begin_s + i / per_second for i, each in enumerate(rounds)}
    took: dict[str, float] = {}

    async def worker() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (given := await due.get()) is not None:
            each, at_s = given
            head = (
                f"POST {path.format(ladder=each.ladder)} HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(each.value)}\r\n"
                + (f"Authorization: Bearer {token}\r\n" if token else "")
                + "\r\n"
            )
            writer.write(head.encode() + each.value)
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
            length = next(
                int(line.split(b":")[1])
                for line in answer.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            )
            body = await asyncio.wait_for(reader.readexactly(length), TIMEOUT_S)
            took[each.round_id] = time.time() - at_s
            assert answer.startswith(b"HTTP/1.1 202"), (answer, body)
        writer.close()

    workers = [asyncio.create_task(worker()) for _ in range(CONNECTIONS)]
    for each in rounds:
        at_s = due_s[each.round_id]
        if (wait_s := at_s - time.time()) > 0.0005:
            await asyncio.sleep(wait_s)
        due.put_nowait((each, at_s))
    for _ in workers:
        due.put_nowait(None)
    await asyncio.gather(*workers)
    counted = rounds[int(STEADY * len(rounds)) :]
    return Posted(due_s, np.array([took[each.round_id] for each in counted]))
