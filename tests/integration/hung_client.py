"""stream-rater with a client library of which a call never returns: `python -m ... run`.

As librdkafka's `send_offsets_to_transaction` may after a broken connection (its issue 5456).
"""

import threading
from typing import Any

from stream_rater import cli, service
from stream_rater.adapters.producers import Transactions


def end(*_: Any) -> None:
    """Never returns."""
    threading.Event().wait()


Transactions.end = end  # type: ignore[method-assign]
service.HUNG_S = 2.0

if __name__ == "__main__":
    cli.main()
