"""The whole service under load, on a real Kafka and Redis: `make bench-stream`.

- `rounds`: what is played, by seed; `ground`: the servers, what goes in and what comes out;
  `crew`: the worker processes.
- `throughput`: a backlog, until all of it is rated; `latency`: a steady load; `crowd`: a round of
  a million players.
- `operating`: a worker that dies, a Redis that is lost, players who move in, memory, sizes;
  `correcting`: corrections and ban waves.
- `null`, `quix`: what runs in the service's place, to compare it with.
- `plan`, `__main__`: what is measured, and the command.

A crew of workers is started, warmed up with the first rounds and then stopped (SIGSTOP) while the
backlog is sent. So what is timed begins with workers at rest and all rounds in the log; start-up is
no part of it.
"""
