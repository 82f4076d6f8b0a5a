"""How large the messages are that the service writes, and the limits on their way.

A message that is larger than a limit on its way can never be written: whoever must write it would
try for ever, and so would each successor. So the size of each kind is bounded by what cuts it, and
not by what is usual. The table is in `docs/reference/settings.md`; these are the limits by Kafka's
defaults:

- The topic's `max.message.bytes`; the broker's `message.max.bytes` is its default. It holds for a
  whole batch, after compression. Workers refuse a topic with less than LEAST_BYTES.
- The client's `batch.size`, 1,000,000: a batch of several messages is not larger before
  compression. A larger message is a batch of its own.
- The client's `message.max.bytes`: workers set it to what readers can read
  (`access.LARGEST_RESPONSE_BYTES`), `submit` and `correct` to 16 MiB.
- The broker's `socket.request.max.bytes`, 104,857,600. The workers' own limit is below it.
- Consumers and replicas get the first batch of a partition whole, however large it is.

Two messages cannot be cut: a part with one row of a ladder on which some 40,000 seasons have
started, and the note of a ladder with some 25,000 changes in the ladders file. A topic with a
larger `max.message.bytes` takes them. A worker that cannot write a message logs how large it is and
the command that helps (`producers`), and goes on as soon as the topic takes it.

What a worker writes to Redis has limits, too: `proto-max-bulk-len` (512 MiB) for each value, and
`client-query-buffer-limit` (1 GiB). A record has at most 378 bytes, and a piece of a checkpoint
some 10 MB. If Redis does not take a checkpoint, nothing is lost: it is a cache.
"""

MOST_BYTES = 1_000_000
"""The most bytes of a part, of a correction part and of a note. Every topic that workers accept
takes a message of this size with its headers, compressed or not."""

LEAST_BYTES = 1_048_588
"""The least `max.message.bytes` of a topic that workers write to. It is Kafka's default."""
