"""Prints what the simulation has, by what is registered: `python -m tests.simulation.count`."""

from .faults import KINDS
from .mutants import MUTANTS
from .transitions import TRANSITIONS


def counts() -> dict[str, int]:
    return {
        "mutants": len(MUTANTS),
        "scenarios": len({each.scenario for each in MUTANTS.values()}),
        "mutants killed by scenarios": sum(map(bool, MUTANTS.values())),
        "kinds of fault": len(KINDS),
        "transitions": len(TRANSITIONS),
    }


if __name__ == "__main__":
    for what, number in counts().items():
        print(f"{number:4} {what}")
