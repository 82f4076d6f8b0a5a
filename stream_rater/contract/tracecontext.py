"""W3C trace context: what a round's headers carry goes, unread, to the headers of its ratings.

Carried is what came, to the byte, whoever watches: spans hang below it. So a part that is written
twice is the same twice, and neither an event's value nor a belief knows of it. Headers are a
stranger's: what is not valid, or is longer than it may be, is left behind.
"""

from typing import Annotated, Final

import msgspec

from stream_rater.contract.events import Headers, header

PARENT: Final = "traceparent"
STATE: Final = "tracestate"

VALID_PARENT: Final = r"^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$"
"""Version, trace, span and flags, as section 3.2 of the recommendation has them; of later versions
those that say no more."""
PARENT_LENGTH: Final = 55

VALID_STATE: Final = r"^[ -~]*\Z"
STATE_LENGTH: Final = 512
"""What everybody should be able to carry."""


class Trace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The context that a round was reported in."""

    parent: Annotated[str, msgspec.Meta(pattern=VALID_PARENT, max_length=PARENT_LENGTH)]
    state: Annotated[str, msgspec.Meta(pattern=VALID_STATE, max_length=STATE_LENGTH)] = ""
    """Of the vendors on its way, in words of their own; or nothing."""

    @property
    def id(self) -> str:
        """Of the trace itself, whatever span of it this is: 32 hexadecimal digits."""
        return self.parent[3:35]

    def headers(self) -> list[tuple[str, bytes]]:
        """Those to send it on by."""
        parent = (PARENT, self.parent.encode())
        return [parent, (STATE, self.state.encode())] if self.state else [parent]


def trace_of(headers: Headers) -> Trace | None:
    """What these headers carry; a state that cannot be carried takes no parent with it."""
    parent = header(headers, PARENT)
    if not parent:
        return None
    return _valid(parent, header(headers, STATE)) or _valid(parent, "")


def _valid(parent: str, state: str) -> Trace | None:
    try:
        return msgspec.convert((parent, state), Trace)
    except msgspec.ValidationError:
        return None
