"""W3C trace context: the context in a round's headers is copied to the headers of its rating
events.

The context is copied byte for byte without being read, whether or not tracing is on; the workers'
spans are children of it. So a part that is written twice has the same bytes both times, and neither
an event's value nor a belief contains the context. Headers are untrusted input: a context that is
invalid or too long is dropped.
"""

from typing import Annotated, Final

import msgspec

from stream_rater.contract.events import Headers, header

PARENT: Final = "traceparent"
STATE: Final = "tracestate"

VALID_PARENT: Final = r"^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$"
"""Version, trace, span and flags, as in section 3.2 of the recommendation. A later version is valid
if it has no further fields."""
PARENT_LENGTH: Final = 55

VALID_STATE: Final = r"^[ -~]*\Z"
STATE_LENGTH: Final = 512
"""The length in characters that every system should be able to propagate."""


class Trace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The trace context in which a round was reported."""

    parent: Annotated[str, msgspec.Meta(pattern=VALID_PARENT, max_length=PARENT_LENGTH)]
    state: Annotated[str, msgspec.Meta(pattern=VALID_STATE, max_length=STATE_LENGTH)] = ""
    """The vendors' own entries (`tracestate`). Empty if there are none."""

    @property
    def id(self) -> str:
        """The id of the trace, which all of its spans share: 32 hexadecimal digits."""
        return self.parent[3:35]

    def headers(self) -> list[tuple[str, bytes]]:
        """The headers that propagate the context."""
        parent = (PARENT, self.parent.encode())
        return [parent, (STATE, self.state.encode())] if self.state else [parent]


def trace_of(headers: Headers) -> Trace | None:
    """The context in these headers; None if there is no valid parent. If only the state is invalid,
    the context has the parent without a state."""
    parent = header(headers, PARENT)
    if not parent:
        return None
    return _valid(parent, header(headers, STATE)) or _valid(parent, "")


def _valid(parent: str, state: str) -> Trace | None:
    try:
        return msgspec.convert((parent, state), Trace)
    except msgspec.ValidationError:
        return None
