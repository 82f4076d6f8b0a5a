"""Benchmarks: how fast, how exact and how small, measured and not asserted.

`make bench`, or `python -m tests.benchmarks [NAMES] [--quick] [--repeat N]`. What is compared runs
in one process, taking turns, and the best of each counts: all else a machine does only adds time.

`stream` measures the whole service, `document` writes the figures of all benchmarks into the
documents (`WRITE=1`).
"""
