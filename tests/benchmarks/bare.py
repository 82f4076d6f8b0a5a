"""The framework and the server of `serve` alone. `python -m tests.benchmarks.bare BYTES` answers
every request by a JSON text of so many bytes. Without BYTES, it only produces each
round to Kafka, and answers 202."""

import asyncio
import sys

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stream_rater.adapters.kafka.round_log import KafkaRoundLog
from stream_rater.columns.sharding import partition_of
from stream_rater.config.files import read_settings
from stream_rater.contract.events import JSON
from stream_rater.contract.record import NewRecord, RecordPlace
from stream_rater.runtime import log
from stream_rater.runtime.connections import ConnectionLimits, Server

HEADERS = (("content-type", JSON.encode()),)


async def listen(*size: str) -> None:
    """Answer until SIGTERM."""
    rounds = None if size else KafkaRoundLog(read_settings(None))
    constant = msgspec.json.encode("x" * (int(size[0]) - 2)) if size else b"{}"

    async def answer(request: Request) -> Response:
        body = await request.body() if request.method == "POST" else b""
        if rounds is not None:
            ladder = request.path_params["path"].split("/")[2]
            partition = partition_of(ladder, rounds.partitions)
            record = NewRecord(partition, ladder.encode(), body, HEADERS)
            (outcome,) = await rounds.append([record])
            return Response(constant, 202 if isinstance(outcome, RecordPlace) else 503)
        return Response(constant, media_type="application/json")

    async def ready(_: Request) -> Response:
        return Response(b"ok\n", 200 if rounds is None or rounds._ends else 503)

    routes = [Route("/readyz", ready), Route("/{path:path}", answer, methods=["GET", "POST"])]
    server = Server(Starlette(routes=routes), "127.0.0.1:0", ConnectionLimits(2000, 0, 256 * 1024))
    log.configure()
    log.logger("serve").info("http", port=server.port)
    if rounds is not None:
        rounds.start(asyncio.get_running_loop())
    await server.listen()


if __name__ == "__main__":
    asyncio.run(listen(*sys.argv[1:]))
