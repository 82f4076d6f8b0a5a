"""stream-rater with a client library in which a call never returns: `python -m ... run`.

librdkafka's `send_offsets_to_transaction` may do so after a broken connection (its issue 5456).
"""

import threading
from collections.abc import Mapping

from stream_rater.adapters.kafka.producers import Transactions
from stream_rater.cli import app
from stream_rater.contract.events import PERFORMANCE_ESTIMATED
from stream_rater.pipeline.ports import NO_TAILS, Tails
from stream_rater.runtime import service

_end = Transactions.end


def end(self: Transactions, offsets: Mapping[int, int], tails: Tails = NO_TAILS) -> None:
    """Hang if an updater has finished something."""
    assert self._input is not None
    if self._input.topic.endswith(PERFORMANCE_ESTIMATED) and any(offsets.values()):
        threading.Event().wait()
    _end(self, offsets, tails)


Transactions.end = end  # type: ignore[method-assign]
service.HUNG_S = 15.0
# Long enough that no other call, of a worker that hardly gets a processor, counts as one.

if __name__ == "__main__":
    app.main()
