"""Serves the page at `/`, and that of the API at `/docs`, which consist of static files of the
package. They make requests only to the API."""

import hashlib
import mimetypes
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import Page

HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The headers that forbid the page to load anything from another origin, and forbid other pages to
frame it."""

PAGES = {
    "/page/index.html": "/", "/page/status.html": "/status", "/docs/index.html": "/docs",
}  # fmt: skip


PICTURE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "X-Content-Type-Options": "nosniff",
}
"""The headers of a picture. They forbid scripts in it, if a browser shows it as a page."""


def page_routes(page: Page, ladders: str) -> Iterator[Route]:
    """Yield a route for each file of the pages. No other can be requested. The logo lies beside
    the file `ladders`. Raises BadConfiguration if it cannot be read."""
    look = {"name": page.name, "colour": page.colour, "logo": page.logo is not None}
    yield _route("/page/look.json", "look.json", msgspec.json.encode(look))
    if page.logo is not None:
        try:
            body = Path(ladders).with_name(page.logo).read_bytes()
        except OSError as error:
            raise BadConfiguration(f"{ladders}: page.logo: {page.logo}: {error.strerror}") from None
        yield _route("/page/logo", page.logo, body, HEADERS | PICTURE_HEADERS)
    for folder in ("page", "docs"):
        for file in resources.files("stream_rater").joinpath("serve", folder).iterdir():
            path = f"/{folder}/{file.name}"
            yield _route(PAGES.get(path, path), file.name, file.read_bytes())


def _route(path: str, name: str, body: bytes, headers: dict[str, str] = HEADERS) -> Route:
    kind = mimetypes.guess_type(name)[0]
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = headers | {"ETag": tag}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)

    return Route(path, answer)
