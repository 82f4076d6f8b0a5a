"""stream-rater whose updater fails, and whose estimator then hangs while it closes its consumer:
`python -m ... run`.

librdkafka may do so if a rebalance begins at that moment, in a callback that holds Python's lock.
"""

import ctypes
from collections.abc import Mapping

from stream_rater.adapters.kafka.consumer import Input
from stream_rater.adapters.kafka.producers import Transactions
from stream_rater.cli import app
from stream_rater.contract.errors import Unrecoverable
from stream_rater.contract.events import PERFORMANCE_ESTIMATED
from stream_rater.pipeline.ports import NO_TAILS, Tails

FOR_EVER_S = 3600

_end, _close = Transactions.end, Input.close


def end(self: Transactions, offsets: Mapping[int, int], tails: Tails = NO_TAILS) -> None:
    """Fail if an updater has finished something."""
    assert self._input is not None
    if self._input.topic.endswith(PERFORMANCE_ESTIMATED) and any(offsets.values()):
        raise Unrecoverable("fenced")
    _end(self, offsets, tails)


def close(self: Input) -> None:
    """Hang, and keep the lock."""
    if self.topic.endswith(PERFORMANCE_ESTIMATED):
        _close(self)
    else:
        ctypes.PyDLL(None).sleep(FOR_EVER_S)


Transactions.end = end  # type: ignore[method-assign]
Input.close = close  # type: ignore[method-assign]

if __name__ == "__main__":
    app.main()
