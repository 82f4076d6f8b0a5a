"""The simulator: a seeded, single-threaded run of the production state machines in memory."""
