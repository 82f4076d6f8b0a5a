"""One seeded, single-threaded simulator that drives the production state machines in memory."""
