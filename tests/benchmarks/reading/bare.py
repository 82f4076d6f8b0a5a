"""The framework and the server of `serve` alone: every question is answered by a constant.

`python -m tests.benchmarks.reading.bare BYTES`: a JSON text of so many bytes. Logs its port as
`serve` does.
"""

import asyncio
import sys

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stream_rater.runtime import log
from stream_rater.runtime.connections import Limits, Server


def main() -> None:
    """Answer until SIGTERM."""
    constant = msgspec.json.encode("x" * (int(sys.argv[1]) - 2))

    async def answer(request: Request) -> Response:
        if request.method == "POST":
            await request.body()
        return Response(constant, media_type="application/json")

    async def ready(_: Request) -> Response:
        return Response(b"ok\n")

    routes = [Route("/readyz", ready), Route("/{path:path}", answer, methods=["GET", "POST"])]
    server = Server(Starlette(routes=routes), "127.0.0.1:0", Limits(2000, 0, 256 * 1024))
    log.configure()
    log.logger("serve").info("http", port=server.port)
    asyncio.run(server.listen())


if __name__ == "__main__":
    main()
