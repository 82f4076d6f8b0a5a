"""Limits the requests to the API: who may ask, how often, how much at the same time, and for how
long. (The limits of connections are in `runtime.connections`.)"""

import asyncio
import hmac
import math
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request

from stream_rater.config.settings import PREFIX
from stream_rater.runtime.connections import is_local, is_loopback
from stream_rater.serve.bodies import MOST_BODY_BYTES
from stream_rater.serve.problems import Refused

BODY_S = 10.0  # The seconds within which a body must be complete.
MOST_BODIES_BYTES = 64 * 1024 * 1024
"""The most bytes of all bodies together whose requests are not answered yet."""
BURST_S = 2.0  # The seconds whose requests an address may send all at once.
MOST_ADDRESSES = 10_000  # The most buckets. The oldest is dropped: it is full again.

T = TypeVar("T")

client_address: ContextVar[str] = ContextVar("client_address", default="")
"""The address of the client whose request is being answered."""
client_writes: ContextVar[bool] = ContextVar("client_writes", default=False)
"""Whether this client may write."""


class RateLimit:
    """A token bucket for each address: `per_second` requests a second (0: no limit), and BURST_S
    times as many at once. It is for one thread."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._full = max(1.0, BURST_S * per_second)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By address, the tokens left when its bucket was last used, and that time in seconds."""

    def take(self, address: str, now_s: float) -> None:
        """Take a token from the bucket of an address. Raises Refused if it has none."""
        if not self._per_second:
            return
        left, at_s = self._left.pop(address, (self._full, now_s))
        left = min(self._full, left + (now_s - at_s) * self._per_second)
        allowed = left >= 1.0
        self._left[address] = (left - allowed, now_s)
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        if not allowed:
            wait_s = (1.0 - left) / self._per_second
            raise Refused(
                "too-many-requests", f"{address} asks too often: wait {wait_s:.2g} s",
                retry_after_s=math.ceil(wait_s),
            )  # fmt: skip


class Shares:
    """Gives parts of something bounded to the clients whose requests are being answered. An address
    may have as much as it leaves free, so that no client keeps all others out. Those who may write
    share an amount of their own. It is for one event loop."""

    def __init__(self, most: int, what: str) -> None:
        """`most`: the amount for readers, and for writers. `what`: the end of the error's text."""
        self._most, self._what = most, what
        self._used: Counter[tuple[bool, str]] = Counter()
        """The amounts in use, by whether the client may write, and by address (empty: in total)."""

    @contextmanager
    def taking(self, amount: int = 0) -> Iterator[Callable[[int], None]]:
        """Use an amount until the block ends. The yielded function takes more. Both raise Refused
        if there is not enough."""
        writes, mine = client_writes.get(), 0
        all_of, own = (writes, ""), (writes, client_address.get() or "unknown")

        def take(more: int) -> None:
            nonlocal mine
            if more > 0 and self._used[own] + self._used[all_of] + 2 * more > self._most:
                raise Refused("busy", f"{self._used[all_of]:,} {self._what}")
            mine += more
            self._used.update({own: more, all_of: more})

        try:
            take(amount)
            yield take
        finally:
            take(-mine)
            if not self._used[own]:
                del self._used[own]


async def receive(
    request: Request, take: Callable[[int], None], most_bytes: int = MOST_BODY_BYTES
) -> bytes:
    """Receive a whole body of at most `most_bytes`. `take` takes its bytes from a share: first as
    many as are announced. Raises Refused if the body is too large or too slow, or the share too
    small."""
    too_large = Refused("body-too-large", f"send {most_bytes:,} bytes at most", "body")
    announced = int(request.headers.get("content-length") or 0)
    if announced > most_bytes:
        raise too_large
    take(announced)
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                taken, size = max(size, announced), size + len(part)
                if size > most_bytes:
                    raise too_large
                take(max(size - taken, 0))
                parts.append(part)
    except TimeoutError:
        raise Refused("body-too-slow", f"send it within {BODY_S:g} s", "body") from None
    return b"".join(parts)


class _Job(NamedTuple):
    """Work that waits for a thread."""

    work: Callable[[], Any]
    done: "asyncio.Future[Any]"


class FairExecutor:
    """Threads for long computations. It is for one event loop. Each address has its own queue, and
    the queues are served in turn, so a client that asks many questions delays only its own."""

    def __init__(self, name: str, threads: int, max_waiting: int) -> None:
        """`max_waiting`: the most questions of one address that may wait."""
        self._pool, self._free = ThreadPoolExecutor(threads, name), threads
        most = 2 * (threads + max_waiting)
        self._shares = Shares(most, "questions that take long wait here: try again")
        self._queues: OrderedDict[str, deque[_Job]] = OrderedDict()
        """The waiting jobs of each address, the next address first. No queue is empty."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread, and return its result. Raises Refused if too many wait."""
        job = _Job(work, asyncio.get_running_loop().create_future())
        with self._shares.taking(1):
            self._queues.setdefault(client_address.get(), deque()).append(job)
            self._start()
            result: T = await job.done
        return result

    def _start(self) -> None:
        """Give the next jobs to the free threads."""
        while self._free and self._queues:
            address, queue = self._queues.popitem(last=False)
            job = queue.popleft()
            if queue:
                self._queues[address] = queue
            if job.done.cancelled():  # nobody waits for it
                continue
            self._free -= 1
            running = asyncio.get_running_loop().run_in_executor(self._pool, job.work)
            running.add_done_callback(partial(self._end, job))

    def _end(self, job: _Job, finished: "asyncio.Future[Any]") -> None:
        self._free += 1
        error = finished.exception()
        if not job.done.cancelled():
            if error is None:
                job.done.set_result(finished.result())
            else:
                job.done.set_exception(error)
        self._start()


_OF_PROXIES = re.compile(r"^(via$|cf-|x-envoy-|x-original-)|forwarded|proxy|client-ip|real-ip")
"""The names of headers by which a proxy says for whom it asks."""

Rights = Literal["none", "read", "write"]
"""What a token allows. The token for writing also allows reading."""


class Tokens:
    """The tokens for reading and for writing. Without a token for reading, all may read; without
    one for writing, none may write."""

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
    """Whose pages may ask where no token is needed. A browser of this machine lets each page send
    requests to it: by a form, which no CORS rule stops, and by a name of the page's own that leads
    to this machine, whose answers it reads (DNS rebinding)."""

    def __init__(self, address: str, origins: Sequence[str]) -> None:
        """The process listens at `address`. Pages of `origins` may ask; `*`: pages of all sites."""
        self._any = not is_local(address) or "*" in origins
        self._names = {urlsplit(each).netloc for each in origins}

    def check_reading(self, headers: Headers) -> None:
        """Raise Refused if a request to this machine names another host: browsers name one."""
        for host in filter(None, headers.getlist("host")):
            if not (self._any or host in self._names or is_loopback(host)):
                raise Refused(
                    "foreign-page", f"ask for localhost or 127.0.0.1; or name https://{host[:80]} "
                    f"in {PREFIX}SERVE_CORS; or set {PREFIX}SERVE_TOKEN, and send it",
                    "header.Host",
                )  # fmt: skip

    @staticmethod
    def check_writing(headers: Headers, version: str) -> None:
        """Raise Refused unless a program of this machine, or this process's page, sends the
        request. `version`: the version of HTTP."""
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
