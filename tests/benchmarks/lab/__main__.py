"""`make evidence`: the experiments of the Elo-MMR paper, and comparisons on games, as typed."""

from stream_rater.columns import compiling
from tests.benchmarks.lab.command import evidence

if __name__ == "__main__":  # the workers of trials import this file
    compiling.on_stderr()
    evidence(prog_name="python -m tests.benchmarks.lab")
