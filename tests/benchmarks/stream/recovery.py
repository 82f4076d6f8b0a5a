"""Two workers under a steady load: one is killed, or each restarted in turn. The longest that any
rating took is how long it was until the shards of who left were served again.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tests.benchmarks.measure import Result
from tests.benchmarks.stream.crew import Crew, a_crew
from tests.benchmarks.stream.ground import Ground
from tests.benchmarks.stream.latency import phase
from tests.benchmarks.stream.rounds import Round, Workload
from tests.benchmarks.stream.throughput import SERVICE

SESSION_MS = 6000
"""As the service has it where nothing is set."""


def kill(crew: Crew) -> None:
    """SIGKILL to one, who is started again under its name at once."""
    victim = crew.workers[0]
    victim.kill()
    crew.replace(victim, "worker-0")


def roll(crew: Crew) -> None:
    """Each leaves as asked, and is replaced, one after the other; the others take over."""
    for worker in list(crew.workers):
        worker.terminate()
        worker.wait()
        crew.replace(worker, "")


STORIES: dict[str, tuple[Sequence[str], Callable[[Crew], None]]] = {
    "kill": (("worker-0", "worker-1"), kill),
    "roll": (("", ""), roll),
}
"""The workers' names (static members have one), and what befalls them."""


def recovery(
    ground: Ground, workload: Workload, warm: Sequence[Round], rounds: Sequence[Round], rate: float
) -> Iterator[Result]:
    """Each story, by the same rounds."""
    for story, (names, befalls) in STORIES.items():
        with a_crew(ground, workload, names, SERVICE, session_timeout_ms=SESSION_MS) as crew:
            for worker in crew.workers:
                worker.wait_ready()
            crew.rate(warm)
            found = phase(crew.settings, rounds, rate, partial(befalls, crew))
        yield found.row(f"recovery/{workload.name}/{story}", found.quantile_ms(1.0), "ms, most")
