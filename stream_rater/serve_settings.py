"""What can be set of `serve`."""

from typing import Annotated

import msgspec
from msgspec import Meta


class Serve(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that only `serve` reads."""

    serve: str = "127.0.0.1:9109"
    """Where the API listens; port 0 picks a free one."""
    serve_token: str = ""
    """The bearer token that requests must have; empty: none."""
    serve_token_file: str = ""
    serve_probes: str = ""
    """Where `/healthz`, `/readyz` and `/metrics` are answered by themselves, as well as with the
    API; empty: nowhere."""
    serve_connections: Annotated[int, Meta(ge=0, le=100_000)] = 1000
    """Connections of one address. 0: no limit."""
    serve_rate: Annotated[float, Meta(ge=0, le=1e6)] = 100.0
    """Requests a second of one address in the long run. 0: no limit."""
    serve_history: Annotated[int, Meta(ge=0, le=1000)] = 20
    """The changes that are kept of each player. 0: none."""
    serve_cors: str = ""
    """Origins whose pages may ask, with commas between; `*`: any; empty: none."""
