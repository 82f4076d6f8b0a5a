"""The protocol, as pure state machines.

`estimator` and `updater` are generators: they yield an effect (`ports`), get its outcome or have
its trouble raised where they stand, and never touch a clock, a socket or a random number. Whoever
drives them decides what the effects do: `service` performs them on Kafka and Redis, the simulator
in memory with faults at every step.

The one principle: the state of a shard is a fold of its prefix of `performance-estimated`;
`applied` says which prefix the store holds. Any past state of the store is therefore safe to
resume from, and every writer, zombie or not, writes the same thing. Kafka's transactions only
spare subscribers duplicates.
"""
