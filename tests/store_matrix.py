"""`make stores`: tests each store, and prints a table of stores and suites (`tests.matrix`).

With `--write`, the table goes into docs/operations/managed-services.md.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence

from local.stores import ALL, STORE_VARIABLE, Store, why_missing
from tests.matrix import PAGE, Counts, Runner, concluded

SUITES: Mapping[str, Sequence[str]] = {
    "the store": (
        "test_store.py", "test_store_layout.py", "test_redis_address.py", "test_redis_checks.py",
        "test_redis_failover.py", "test_redis_reads.py", "test_checkpoint_effects.py",
        "test_full_store.py", "test_moving_slots.py",
    ),
    "the index of `serve`": (
        "test_serve_index.py", "test_serve_index_lost.py", "test_season_index.py",
        "test_views_in_redis.py",
    ),
}  # fmt: skip
"""Files of tests/contract, by the part that they test."""

FAULTS = "redis-killed", "redis-restored", "redis-failover"
"""The faults of `make chaos` without which a store is not called supported."""


def main() -> int:
    """Run all suites on the named stores, or on all that are here. 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.store_matrix", description=__doc__)
    parser.add_argument("stores", nargs="*", metavar="STORE", help=f"of {', '.join(ALL)}")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}, too")
    given = parser.parse_args()
    if unknown := set(given.stores) - ALL.keys():
        parser.error(f"no such store: {', '.join(sorted(unknown))}")
    rows = {}
    for name in given.stores or ALL:
        if ALL[name].find() is None:
            sys.stderr.write(f"{why_missing(ALL[name])}\n")
            continue
        rows[ALL[name].title] = _row(ALL[name])
    suites = [*SUITES, *(f"`{name}`" for name in FAULTS)]
    return concluded("store", suites, rows, into_page=given.write)


def _row(store: Store) -> dict[str, Counts]:
    runner = Runner(store.title, STORE_VARIABLE, store.name)
    found = {
        name: runner.tests([f"contract/{file}" for file in files]) for name, files in SUITES.items()
    }
    for name in FAULTS:
        missing = name == "redis-failover" and not store.clusters
        found[f"`{name}`"] = Counts(0, 0, 1) if missing else runner.fault(name)
    return found


if __name__ == "__main__":
    sys.exit(main())
