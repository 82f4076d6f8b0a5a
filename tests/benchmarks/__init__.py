"""Benchmarks measure how fast, exact and small things are, and assert nothing. Rivals take turns in
one process, and the best time of each counts, since a machine's other work only adds time."""
