"""The framework and the server of `serve`, which only produce each body to Kafka and answer 202.

`python -m tests.benchmarks.bare_door`. Logs its port as `serve` does.
"""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stream_rater.adapters.kafka.round_log import KafkaRoundLog
from stream_rater.columns.sharding import partition_of
from stream_rater.config.files import read_settings
from stream_rater.contract.events import JSON
from stream_rater.contract.submissions import NewRecord, Place
from stream_rater.runtime import log
from stream_rater.runtime.connections import Limits, Server

HEADERS = (("content-type", JSON.encode()),)


def main() -> None:
    """Answer until SIGTERM."""
    rounds = KafkaRoundLog(read_settings(None))

    async def answer(request: Request) -> Response:
        ladder = request.path_params["ladder"]
        partition = partition_of(ladder, rounds.partitions)
        record = NewRecord(partition, ladder.encode(), await request.body(), HEADERS)
        (outcome,) = await rounds.append([record])
        return Response(b"{}", 202 if isinstance(outcome, Place) else 503)

    async def ready(_: Request) -> Response:
        return Response(b"ok\n", 200 if rounds._ends else 503)

    async def listen() -> None:
        rounds.start(asyncio.get_running_loop())
        await server.listen()

    path = "/v1/ladders/{ladder}/rounds"
    routes = [Route("/readyz", ready), Route(path, answer, methods=["POST"])]
    server = Server(Starlette(routes=routes), "127.0.0.1:0", Limits(2000, 0, 256 * 1024))
    log.configure()
    log.logger("serve").info("http", port=server.port)
    asyncio.run(listen())


if __name__ == "__main__":
    main()
