"""The whole service under load, on a real Kafka and Redis: `make bench-stream`.

- `rounds`: what is played, by seed; `ground`: the servers, what goes in and what comes out;
  `crew`: the worker processes; `plan`, `__main__`: what is measured, and the command.
- `throughput`: a backlog; `latency`: a steady load, alone and beside a round of a million players;
  `operating`: what the service costs in its life; `null`, `quix`: what it is compared with.

A crew is warmed up with the first rounds, and stopped (SIGSTOP) while the backlog is sent: what is
timed begins with workers at rest and all rounds in the log, without their start.
"""
