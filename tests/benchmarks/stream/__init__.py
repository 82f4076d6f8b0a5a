"""The whole service under load, on a real Kafka and Redis: `make bench-stream`.

- `rounds`: what is played, by seed.
- `ground`: the two servers, what they use of the processors, what was published.
- `throughput`: a backlog of rounds, and how long it takes until all of it is rated.
- `__main__`: the command.

A crew of workers is started, warmed up with the first rounds and then stopped (SIGSTOP) while the
backlog is sent. So what is timed begins with workers at rest and all rounds in the log; start-up is
no part of it.
"""
