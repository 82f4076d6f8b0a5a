"""Replay one seed: `python -m tests.simulation SEED`."""

import argparse
import sys

from .actors import Machines
from .mutants import MUTANTS
from .simulator import Fork, Simulation
from .transitions import TRANSITIONS, name_of


def fork(text: str) -> Fork:
    """A fork as `STEP:SEED`."""
    step, _, seed = text.partition(":")
    return Fork(int(step), int(seed))


def main() -> int:
    """Print the steps of the seed and its violations. The exit code is 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="leave this rule out")
    parser.add_argument(
        "--fork", type=fork, action="append", default=[], metavar="STEP:SEED",
        help="from this step on, another seed decides",
    )  # fmt: skip
    parser.add_argument("--trace", action="store_true", help="print every effect and fault")
    arguments = parser.parse_args()
    machines = MUTANTS[arguments.mutant].machines if arguments.mutant else Machines()
    simulation = Simulation(
        arguments.seed, machines, trace=print if arguments.trace else None, forks=arguments.fork
    )
    print(vars(simulation.weather))
    found = simulation.run()
    for name in sorted(name_of(each) for each in simulation.taken if each in TRANSITIONS):
        print(f"reached {name}")
    print("\n".join(found) or f"seed {arguments.seed}: equal to the sequential replay")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
