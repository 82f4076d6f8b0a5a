"""The tokens that requests must have."""

import hmac
import ipaddress
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from stream_rater.config.settings import PREFIX
from stream_rater.serve.problems import Refused

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


def check_origin(headers: Mapping[str, str]) -> None:
    """Raise Refused if a browser sends the request for a page of another site, or under a name that
    is not this machine's.

    A page that the user of this machine visits could otherwise write where no token is needed: by a
    form, which no CORS rule stops, or by a name of its own that leads to this machine.
    """
    host = headers.get("host", "")
    origin = headers.get("origin", host and f"http://{host}")
    if origin.partition("://")[2] != host or not is_loopback(host):
        raise Refused(
            "foreign-page", f"set {PREFIX}SERVE_WRITE_TOKEN, and send it", "header.Origin"
        )


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to an address (HOST or HOST:PORT)."""
    host = urlsplit(f"//{address}").hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _unauthorized(name: str) -> Refused:
    return Refused(
        "unauthorized", f"send the header `Authorization: Bearer {name}`", "header.Authorization"
    )
