"""Compares our systems with those of other packages, to show which system to choose for which game.

A *game* is a season of rounds: a file unchanged, or with its rounds cut into small rounds or teams.
Each system has three configurations on a game:

- *default* is the system's first guess;
- *log loss* and *order* are tuned on the first TRAIN, a fraction, of the rounds: one by log loss,
  the other by order. Their variance factor is fitted as rounds come in. The other rounds are
  divided into `sides.REFITS` parts, and the factor of a part is fitted on all rounds before the
  part. So no round influences its own factor. Ratings do not depend on the factor.

All configurations are scored on the other rounds by the same code (`sides`).

Tuning must not overfit a short first part. So it finds the most probable parameters, not those of
maximum likelihood: it minimises

    total loss + sum of (x - x0)^2 / (2 PRIOR^2)

where x is a point of the unit cube of the parameters' ranges and x0 is the first guess. Parameters
stay near the first guess unless the rounds are evidence against it. If a system is tuned by order,
the total loss is a number of pairs in the wrong order, where a round of n sides counts as n / 2
pairs (`sides`). So a wrong pair counts as much as one nat. The report shows what the prior and the
factor gain on each game (`Gain`).

Parameters determine both who is better and how confident a prediction is. The factor alone can
determine the confidence. So each point that is tried has the factor that suits it best, and the
parameters are chosen by how well they predict who is better.

*Ours* is the system that the report recommends: REFERENCE, on all games. If REFERENCE does not take
part, it is our system with the least log loss on the first part. This second rule is worse, because
nearly all players of a first part are newcomers, and the system that predicts newcomers best need
not predict later rounds best. The report counts how often its choice is better or worse.

Our systems are compared with each peer by the paired bootstrap over the other rounds: by log loss
and by order when both are tuned for log loss, and by order when both are tuned for order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import product

import msgspec
import numpy as np

from stream_rater.evaluation import peers
from stream_rater.evaluation.alike import alike, counted
from stream_rater.evaluation.bootstrap import Difference, differences
from stream_rater.evaluation.contestants import System
from stream_rater.evaluation.fits import LOG_LOSS, ORDER, ORDER_OF_ALL, Fitted, Scored, fit
from stream_rater.evaluation.game import Game
from stream_rater.evaluation.measures import better
from stream_rater.evaluation.sharing import sharing

REFERENCE = "two-moment"
"""The name of our system that the peers beat least often on the games of the benchmarks. The same
games were used to choose this system, its noise and its first guesses."""

VERDICTS = ("better", "no difference", "worse")

COMPARED = ((LOG_LOSS, LOG_LOSS), (ORDER, LOG_LOSS), (ORDER, ORDER))
"""The comparisons: each has a measure, and the aim for which both systems are tuned."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of one of our systems with a peer by one measure."""

    ours: str
    peer: str
    measure: str
    tuned_for: str
    """The aim for which both systems are tuned."""
    difference: Difference
    """Our measure minus the peer's."""
    verdict: str
    """One of VERDICTS."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all systems on a game, and the comparisons of ours with the peers."""

    game: str
    rounds: int
    scored_rounds: int
    sides: float
    """The average number of sides of a round."""
    systems: list[Fitted]
    ours: str | None
    """The name of our system to use (`choose`); None if there is none."""
    least_at_first: str | None
    """The name of our system with the least log loss on the first part."""
    verdicts: list[Verdict]
    """The comparisons of all our systems with all peers."""
    pairs_scored: int = 0
    """The number of pairs of sides that are scored, the same for every system. Pairs that drew and
    pairs in which neither side finished are left out for all systems."""
    draws_left_out: int = 0
    unfinished_left_out: int = 0

    def of_chosen(self) -> list[Verdict]:
        """The verdicts on our system to use."""
        return [each for each in self.verdicts if each.ours == self.ours]


def choose(fitted: Sequence[Fitted]) -> str | None:
    """The name of the system to use among these (see the module's docstring)."""
    if any(each.system == REFERENCE for each in fitted):
        return REFERENCE
    return least_at_first(fitted)


def least_at_first(fitted: Sequence[Fitted]) -> str | None:
    """The name of the system with the least log loss on the first part when it is tuned for log
    loss. The first of equal systems is chosen. None if nothing was scored."""
    losses = {each.system: each.of(LOG_LOSS).first_log_loss for each in fitted}
    known = {system: loss for system, loss in losses.items() if loss is not None}
    return min(known, key=lambda system: known[system]) if known else None


def verdict(measure: str, difference: Difference) -> str:
    """Classify a difference: one of VERDICTS, which describes our system."""
    if difference.noise:
        return "no difference"
    return "better" if difference.mean * better(measure) > 0.0 else "worse"


def verdicts(ours: Mapping[str, Scored], theirs: Mapping[str, Scored]) -> Iterator[Verdict]:
    """Yield the verdicts on each of our systems against each peer. The keys are the names of the
    systems. Order is over the experienced sides, or over all sides if no side has played enough
    rounds."""
    for (name, own), (peer, other) in product(ours.items(), theirs.items()):
        for measure, aim in COMPARED:
            wanted = [measure, ORDER_OF_ALL] if measure == ORDER else [measure]
            one, two = alike([own[aim], other[aim]])
            found = differences(one, two, wanted)
            known = [(each, gap) for each, gap in found.items() if gap is not None]
            for each, gap in known[:1]:
                yield Verdict(
                    ours=name, peer=peer, measure=each, tuned_for=aim, difference=gap,
                    verdict=verdict(each, gap),
                )  # fmt: skip


def result_of(game: Game, fitted: Mapping[str, tuple[Fitted, Scored]]) -> Result:
    """Make a game's result from those of its systems. The keys are the names of the systems."""
    scored = {name: each for name, (_, each) in fitted.items()}
    own = {name: each for name, each in scored.items() if name not in peers.SPACES}
    theirs = {name: each for name, each in scored.items() if name in peers.SPACES}
    found = [each for name, (each, _) in fitted.items() if name in own]
    numbers = np.concatenate([each.numbers for each in game.sessions])
    sizes = game.sizes()
    some = next((each for every in scored.values() for each in every.values()), None)
    of = None if some is None else counted(some, draws=False)
    return Result(
        game=game.name, rounds=len(numbers), scored_rounds=int((numbers >= game.boundary).sum()),
        sides=sum(sizes) / max(len(sizes), 1), systems=[each for each, _ in fitted.values()],
        ours=choose(found), least_at_first=least_at_first(found),
        verdicts=list(verdicts(own, theirs)),
        pairs_scored=of.pairs if of else 0, draws_left_out=of.drawn_left_out if of else 0,
        unfinished_left_out=of.unfinished_left_out if of else 0,
    )  # fmt: skip


# --- all of it ------------------------------------------------------------------------------------
Job = tuple[int, System]
"""The index of a game, and a system."""


def _work(trials: int, games: Sequence[Game], job: Job) -> tuple[Fitted, Scored]:
    number, system = job
    return fit(system, games[number], trials)


def compare(
    games: Sequence[Game], systems: Sequence[System], trials: int, executor: Executor | None,
    say: Callable[[str], None],
) -> Iterator[Result]:  # fmt: skip
    """Yield the results of all games in order, each as soon as it is known.

    The workers of `executor` share the jobs, each of one game and one system; None: this process
    does them. `trials` is the number of configurations to try for each system and aim. `say` is
    called with a line about each finished job. Raises MissingExtra without SciPy, and TrialsFailed
    if the executor fails.
    """
    jobs = [(number, system) for number in range(len(games)) for system in systems]
    for number, found in enumerate(_results(games, jobs, len(systems), trials, executor, say)):
        yield result_of(games[number], found)


def _results(
    games: Sequence[Game], jobs: Sequence[Job], each: int, trials: int,
    executor: Executor | None, say: Callable[[str], None],
) -> Iterator[dict[str, tuple[Fitted, Scored]]]:  # fmt: skip
    """Yield, for each game, the results of its systems by name. A game has `each` of the jobs."""
    with sharing(games, executor) as run:
        done = run(partial(_work, trials), jobs)
        for first in range(0, len(jobs), each):
            found = {}
            for number, system in jobs[first : first + each]:
                found[system.name] = next(done)
                say(f"{games[number].name}: {system.name}")
            yield found
