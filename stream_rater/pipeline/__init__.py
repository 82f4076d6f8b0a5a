"""The exactly-once rating protocol, as pure state machines: an estimator and an updater.

`estimator` and `updater` are generators. They yield an effect (`ports`) and receive its outcome, or
the exception that the effect failed with. They never read a clock, open a socket or draw a random
number. The driver decides what an effect does: `adapters.driver` performs effects on Kafka and
Redis; the simulator performs them in memory and injects faults at every step.

The protocol rests on one principle. The state of a shard is a fold over a prefix of its partition
of `performance-estimated`, and the offset `applied` in the store is the end of that prefix. So a
worker may resume safely from any past state of the store. Every writer writes the same bytes for
the same prefix, even a zombie, which is a worker that lost its partitions and does not know it yet.
Kafka's transactions are needed for one purpose only: they keep duplicate events from subscribers.
"""
