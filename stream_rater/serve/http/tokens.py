"""The tokens that requests must have."""

import hmac
import re
from collections.abc import Sequence
from typing import Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from stream_rater.config.settings import PREFIX
from stream_rater.runtime.connections import is_local, is_loopback
from stream_rater.serve.problems import Refused

_OF_PROXIES = re.compile(r"^(via$|cf-|x-envoy-|x-original-)|forwarded|proxy|client-ip|real-ip")
"""The names of headers by which a proxy says for whom it asks."""

Rights = Literal["none", "read", "write"]
"""What a token allows. The token for writing also allows reading."""


class Tokens:
    """The tokens for reading and for writing. Without a token for reading, all may read. Without a
    token for writing, no one may write."""

    def __init__(self, read: str, write: str) -> None:
        self._read, self._write = read.encode(), write.encode()

    def rights(self, authorization: str) -> Rights:
        """What a request may do whose header `Authorization` has this value."""
        kind, _, text = authorization.partition(" ")
        given = text.strip().encode()
        if kind.lower() != "bearer" or not given:
            return "none"
        if self._write and hmac.compare_digest(given, self._write):
            return "write"
        return "read" if self._read and hmac.compare_digest(given, self._read) else "none"

    def check_reading(self, rights: Rights) -> None:
        """Raise Refused if the rights do not suffice to read."""
        if self._read and rights == "none":
            raise _unauthorized("TOKEN")

    def check_writing(self, rights: Rights) -> None:
        """Raise Refused if the rights do not suffice to write."""
        if rights == "read":
            raise Refused(
                "read-only", f"send the token of {PREFIX}SERVE_WRITE_TOKEN", "header.Authorization"
            )
        if rights == "none":
            raise _unauthorized("WRITE_TOKEN")


class Sites:
    """Whose pages may ask where no token is needed.

    A browser of this machine lets each page send requests to it: by a form, which no CORS rule
    stops, and by a name of the page's own that leads to this machine, whose answers it reads (DNS
    rebinding).
    """

    def __init__(self, address: str, origins: Sequence[str]) -> None:
        """`address` is where the process listens. `origins` are those whose pages may ask; `*`: of
        any site."""
        self._any = not is_local(address) or "*" in origins
        self._names = {urlsplit(each).netloc for each in origins}

    def check_reading(self, headers: Headers) -> None:
        """Raise Refused if a request to this machine names another host. One that names none is
        from no browser."""
        for host in filter(None, headers.getlist("host")):
            if not (self._any or host in self._names or is_loopback(host)):
                raise Refused(
                    "foreign-page", f"ask for localhost or 127.0.0.1; or name https://{host[:80]} "
                    f"in {PREFIX}SERVE_CORS; or set {PREFIX}SERVE_TOKEN, and send it",
                    "header.Host",
                )  # fmt: skip

    @staticmethod
    def check_writing(headers: Headers, version: str) -> None:
        """Raise Refused unless a program of this machine sends the request, or the page of this
        process. `version` is that of HTTP."""
        cure = f"set {PREFIX}SERVE_WRITE_TOKEN, and send it"
        by = [name for name in headers if _OF_PROXIES.search(name)]
        if by or version == "1.0":  # the version of proxies that add no header
            what = f"header {by[0]}" if by else "HTTP/1.0"
            raise Refused("writing-off", f"a proxy sends it ({what}): {cure}", "header")
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        sites = set(headers.getlist("sec-fetch-site")) - {"none", "same-origin"}
        own = len(hosts) == 1 and is_loopback(hosts[0]) and {*origins} <= {f"http://{hosts[0]}"}
        if sites or not own:
            raise Refused("foreign-page", cure, "header.Origin")


def _unauthorized(name: str) -> Refused:
    return Refused(
        "unauthorized", f"send the header `Authorization: Bearer {name}`", "header.Authorization"
    )
