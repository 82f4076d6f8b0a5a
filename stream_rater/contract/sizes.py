"""The sizes of the messages that the service writes, and the limits that they pass.

A message that is larger than one of these limits can never be written. The worker that must write
it would retry for ever, and so would each of its successors. So the code that cuts messages bounds
the size of each kind, whatever size is usual. The table is in `docs/reference/settings.md`. These
are the limits with Kafka's defaults:

- The topic's `max.message.bytes`; the broker's `message.max.bytes` is its default. It limits a
  whole batch after compression. Workers do not accept a topic with less than LEAST_BYTES.
- The client's `batch.size`, 1,000,000: it limits a batch of several messages before compression. A
  larger message is sent in a batch of its own.
- The client's `message.max.bytes`: workers set it to the most that readers can read
  (`access.LARGEST_RESPONSE_BYTES`), `submit` and `correct` to 16 MiB.
- The broker's `socket.request.max.bytes`, 104,857,600. The workers' own limit is below it.
- Consumers and replicas always receive the first batch of a partition whole, at any size.

Two messages cannot be cut: a part with one row of a ladder on which some 40,000 seasons have
started, and the ladder event of a ladder with some 25,000 changes in the ladders file. A topic with
a larger `max.message.bytes` accepts them. A worker that cannot write a message logs its size and
the command that helps (`producers`). It continues as soon as the topic accepts the message.

Redis limits what a worker writes, too: `proto-max-bulk-len` (512 MiB) for each value, and
`client-query-buffer-limit` (1 GiB). A record has at most 378 bytes, and a piece of a checkpoint has
some 10 MB. If Redis does not accept a checkpoint, nothing is lost, because checkpoints are a cache.
"""

MOST_BYTES = 1_000_000
"""The most bytes of a part, of a correction part and of a ladder event. Every topic that workers
accept allows a message of this size with its headers, compressed or not."""

LEAST_BYTES = 1_048_588
"""The least `max.message.bytes` that workers accept for a topic that they write to. It is Kafka's
default."""
