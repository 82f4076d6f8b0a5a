"""A token bucket for each address: so many requests a second in the long run, twice as many at
once."""

from collections import OrderedDict

BURST_S = 2.0
"""A full bucket holds what flows in within so long."""

MOST_ADDRESSES = 10_000
"""Of more, those are forgotten that asked longest ago; their buckets are full again."""


class Buckets:
    """The buckets of all addresses. It is for one thread."""

    def __init__(self, per_second: float) -> None:
        """`per_second`: requests; 0 means no limit."""
        self._per_second = per_second
        self._full = max(1.0, BURST_S * per_second)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By address, the tokens left, and when."""

    def wait_s(self, address: str, now_s: float) -> float:
        """Take a token: 0, or the seconds until there is one."""
        if not self._per_second:
            return 0.0
        left, at_s = self._left.pop(address, (self._full, now_s))
        left = min(self._full, left + (now_s - at_s) * self._per_second)
        allowed = left >= 1.0
        self._left[address] = (left - allowed, now_s)
        if len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._per_second
