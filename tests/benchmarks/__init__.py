"""Benchmarks: how fast, exact and small, measured and not asserted. Rivals take turns in one
process, and the best of each counts: all else a machine does only adds time."""
