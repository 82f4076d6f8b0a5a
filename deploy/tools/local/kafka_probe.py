"""Asks a Kafka broker whether it is ready, in its own protocol over a plain socket.

Ready means more than listening. A broker answers ApiVersions only once the controller has let it
join ("unfenced"), so topics can be created from then on. Asking for a group's and a transaction's
coordinator makes it create its two internal topics now, which otherwise costs the first consumer
and the first transaction seconds of retries.

Request: length, api key, api version, correlation id, client id, then the body.
Answer: length, correlation id, then the body. All big-endian; strings have a 16-bit length.

It needs nothing but Python: the Kafka image that is made here has a copy (`containers`).
"""

import socket
import struct
from typing import Final

_FIND_COORDINATOR: Final = 10
_API_VERSIONS: Final = 18
_GROUP, _TRANSACTION = 0, 1  # coordinator types
_CLIENT_ID: Final = b"readiness"
_CORRELATION_ID: Final = 7
_ANSWER_LIMIT: Final = 1 << 16


def ready(host: str, port: int, timeout_s: float) -> bool:
    """Whether topics, groups and transactions work on a broker now. False after an OSError."""
    with socket.create_connection((host, port), timeout=timeout_s) as broker:
        return _api_versions_answered(broker) and all(
            _has_coordinator(broker, kind) for kind in (_GROUP, _TRANSACTION)
        )


def _api_versions_answered(broker: socket.socket) -> bool:
    """ApiVersions version 0: empty request; the answer begins with an error code."""
    return _error_code(_ask(broker, _API_VERSIONS, 0, b""), at=0) == 0


def _has_coordinator(broker: socket.socket, kind: int) -> bool:
    """FindCoordinator version 1: key, type; the answer is a throttle time, then an error code."""
    body = _string(b"readiness") + struct.pack(">b", kind)
    return _error_code(_ask(broker, _FIND_COORDINATOR, 1, body), at=4) == 0


def _ask(broker: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    """Send a request. Returns the body of its answer, empty if that answers another request."""
    request = struct.pack(">hhi", api_key, version, _CORRELATION_ID) + _string(_CLIENT_ID) + body
    broker.sendall(struct.pack(">i", len(request)) + request)
    length, correlation_id = struct.unpack(">ii", _receive(broker, 8))
    if correlation_id != _CORRELATION_ID or not 4 <= length <= _ANSWER_LIMIT:
        return b""
    return _receive(broker, length - 4)


def _receive(broker: socket.socket, size: int) -> bytes:
    """Receive `size` bytes. Raises ConnectionError if the broker closes the connection before."""
    received = b""
    while len(received) < size:
        chunk = broker.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("the broker hung up")
        received += chunk
    return received


def _error_code(body: bytes, at: int) -> int | None:
    """The 16-bit error code at a position of an answer; None if the answer is too short."""
    if len(body) < at + 2:
        return None
    return int.from_bytes(body[at : at + 2], "big", signed=True)


def _string(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value
