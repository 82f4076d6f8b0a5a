"""Two workers under a steady load: one is killed, or each restarted in turn. The longest that any
rating took is how long it was until the shards of who left were served again.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tests.benchmarks.stream.crew import Crew, a_crew
from tests.benchmarks.stream.ground import Ground, send
from tests.benchmarks.stream.latency import Phase, phase
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
) -> Iterator[tuple[str, Phase]]:
    """Each story, by the same rounds."""
    for ladder_log, (names, befalls) in STORIES.items():
        with a_crew(ground, workload, names, SERVICE, session_timeout_ms=SESSION_MS) as crew:
            for worker in crew.workers:
                worker.wait_ready()
            send(crew.settings, warm)
            crew.wait_until_finished()
            yield ladder_log, phase(crew.settings, rounds, rate, partial(befalls, crew))
