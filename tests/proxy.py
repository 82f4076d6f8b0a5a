"""Toxiproxy between workers and servers: connections that lag, break, crawl, or say nothing."""

import json
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from local.go_tools import TOXIPROXY
from local.processes import LOOPBACK, Launch, Server, free_port, start_on

KAFKA, REDIS = "kafka", "redis"
ROUTES: Final = (KAFKA, REDIS)  # The usual routes.
REQUESTS, ANSWERS = "upstream", "downstream"
DIRECTIONS: Final = (REQUESTS, ANSWERS)
TIMEOUT_S = 60.0

Toxic = dict[str, Any]  # Its type and attributes, as Toxiproxy has them.


class Proxy:
    """A running Toxiproxy, and the routes through it, each with a name."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ports: dict[str, int] = defaultdict(free_port)

    def address(self, route: str) -> str:
        """The address at which clients connect to this route."""
        return f"{LOOPBACK}:{self._ports[route]}"

    def lead(self, route: str, to: str) -> None:
        self._post("/proxies", {"name": route, "listen": self.address(route), "upstream": to})

    def spoil(self, route: str, toxic: Toxic, directions: Sequence[str] = DIRECTIONS) -> None:
        """Add a toxic to a route, in both directions or in one."""
        for stream in directions:
            self._post(f"/proxies/{route}/toxics", toxic | {"stream": stream})

    def cut(self, route: str) -> None:
        """Close the connections of a route, and refuse new ones."""
        self._post(f"/proxies/{route}", {"enabled": False})

    def mend(self) -> None:
        """Open all routes again, and remove their toxics."""
        self._post("/reset", {})

    def _post(self, path: str, body: dict[str, Any]) -> None:
        request = urllib.request.Request(
            f"http://{self._server.address}{path}", json.dumps(body).encode(), method="POST"
        )
        urllib.request.urlopen(request, timeout=TIMEOUT_S).close()


@contextmanager
def a_proxy(folder: Path) -> Iterator[Proxy]:
    def start(port: int) -> Server:
        command = (str(TOXIPROXY.path), "-host", LOOPBACK, "-port", str(port))
        return Server(Launch("toxiproxy", command, folder, port, _answers, TIMEOUT_S)).start()

    with start_on(None, start) as server:
        yield Proxy(server)


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://{LOOPBACK}:{port}/version", timeout=TIMEOUT_S).close()
    except urllib.error.URLError:
        return False
    return True
