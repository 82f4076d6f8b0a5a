"""stream-rater with a client library in which a call never returns. The variable HANGS says which:
`end` is `send_offsets_to_transaction` after a broken connection (librdkafka's issue 5456). `close`:
the updater fails, and the estimator hangs while it closes its consumer, in a callback of a
rebalance that holds Python's lock."""

import ctypes
import os
import threading
from collections.abc import Mapping

from stream_rater.adapters.kafka.consumer import Input
from stream_rater.adapters.kafka.producers import Transactions
from stream_rater.cli import app
from stream_rater.contract.errors import Unrecoverable
from stream_rater.contract.events import PERFORMANCE_ESTIMATED
from stream_rater.pipeline.ports import NO_TAILS, Tails
from stream_rater.runtime import service

FOR_EVER_S = 3600
CLOSE = os.environ["HANGS"] == "close"

_end, _close = Transactions.end, Input.close


def end(self: Transactions, offsets: Mapping[int, int], tails: Tails = NO_TAILS) -> None:
    """Hang or fail if an updater has finished something."""
    assert self._input is not None
    if self._input.topic.endswith(PERFORMANCE_ESTIMATED) and any(offsets.values()):
        if CLOSE:
            raise Unrecoverable("fenced")
        threading.Event().wait()
    _end(self, offsets, tails)


def close(self: Input) -> None:
    """Hang in an estimator, and keep Python's lock."""
    if CLOSE and not self.topic.endswith(PERFORMANCE_ESTIMATED):
        ctypes.PyDLL(None).sleep(FOR_EVER_S)
    _close(self)


Transactions.end = end  # type: ignore[method-assign]
Input.close = close  # type: ignore[method-assign]
if not CLOSE:
    # Long enough that no other call, of a worker that hardly gets a processor, counts as one.
    service.HUNG_S = 15.0

if __name__ == "__main__":
    app.main()
