"""Which system to choose for which game: ours and other packages', tuned and scored alike.

A *game* is a season of rounds: a file as it is, or cut into small rounds or into teams. Each system
has three configurations on it:

- *default*: its first guess;
- *log loss* and *order*: tuned on the first TRAIN of the rounds by one or the other, and then given
  the variance factor that suits all rounds so far best. The others are parted into `sides.REFITS`
  parts, and each has the factor by all rounds before it: no round has a part in its own. Ratings do
  not depend on it.

All are scored on the other rounds by the same code (`sides`). Tuning must not overfit a short first
part. It looks for the most probable parameters, not for the likeliest ones: it minimises

    total loss + sum of (x - x0)^2 / (2 PRIOR^2)

where x is a point of the unit cube of the parameters' ranges and x0 is the first guess. So
parameters leave the first guess where the rounds say so, and only as far. For order the total loss
is the number of pairs in the wrong order, of pairs that share no side: a wrong pair counts as much
as one nat. The report shows the gain of the prior and of the factor for each game (`Gain`).

Parameters decide both who is better and how sure a prediction is. The factor can do the latter
alone, so each point that is tried has the factor that suits it best, and the parameters are chosen
for the former.

*Ours* is one system for all games, REFERENCE. Where it does not take part, it is the one of our
systems with the least log loss on the first part. That rule is worse, and the report counts how
much: nearly everyone in a first part is a newcomer, and the system that predicts newcomers best
need not predict later rounds best. Ours is compared with each peer by the paired bootstrap over the
other rounds: in log loss and in order as both are tuned for log loss, and in order as both are
tuned for order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
"""Of our systems the one that peers beat least often on the games of the benchmarks, by which it,
its noise and its first guesses were chosen."""

VERDICTS = ("better", "no difference", "worse")

COMPARED = ((LOG_LOSS, LOG_LOSS), (ORDER, LOG_LOSS), (ORDER, ORDER))
"""Measures that are compared, and what both systems are tuned for."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How one of our systems compares with a peer in one measure."""

    ours: str
    peer: str
    measure: str
    tuned_for: str
    """Both of them."""
    difference: Difference
    """Ours less the peer's."""
    verdict: str
    """One of VERDICTS."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A game: all systems on it, and how ours compare with the peers."""

    game: str
    rounds: int
    scored_rounds: int
    sides: float
    """Of a round, on average."""
    systems: list[Fitted]
    ours: str | None
    """The one to use of our systems."""
    least_at_first: str | None
    """The one with the least log loss on the first part."""
    verdicts: list[Verdict]
    """Of all our systems."""
    pairs_scored: int = 0
    """Of sides, by every system. Pairs that drew are left out for all, and so are those of which
    neither finished."""
    draws_left_out: int = 0
    unfinished_left_out: int = 0

    def of_chosen(self) -> list[Verdict]:
        """The verdicts of the chosen one."""
        return [each for each in self.verdicts if each.ours == self.ours]


def choose(fitted: Sequence[Fitted]) -> str | None:
    """Of these systems the one to use: see the module's text."""
    if any(each.system == REFERENCE for each in fitted):
        return REFERENCE
    return least_at_first(fitted)


def least_at_first(fitted: Sequence[Fitted]) -> str | None:
    """The system with the least log loss on the first part, tuned for it; the first of equal ones.
    None where nothing was scored."""
    losses = {each.system: each.of(LOG_LOSS).first_log_loss for each in fitted}
    known = {system: loss for system, loss in losses.items() if loss is not None}
    return min(known, key=lambda system: known[system]) if known else None


def verdict(measure: str, difference: Difference) -> str:
    """What an interval says of ours."""
    if difference.noise:
        return "no difference"
    return "better" if difference.mean * better(measure) > 0.0 else "worse"


def verdicts(ours: Mapping[str, Scored], theirs: Mapping[str, Scored]) -> Iterator[Verdict]:
    """Each of ours against each peer, by name. Order is that of all sides where nobody has played
    enough rounds."""
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
    """A game's result from those of its systems, by name."""
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
"""A game's number, and a system."""


def _work(trials: int, games: Sequence[Game], job: Job) -> tuple[Fitted, Scored]:
    number, system = job
    return fit(system, games[number], trials)


def compare(
    games: Sequence[Game], systems: Sequence[System], trials: int, workers: int,
    say: Callable[[str], None],
) -> Iterator[Result]:  # fmt: skip
    """The results of all games, each as soon as it is there. `workers` processes share the work.

    Raises MissingExtra without SciPy.
    """
    jobs = [(number, system) for number in range(len(games)) for system in systems]
    for number, found in enumerate(_results(games, jobs, len(systems), trials, workers, say)):
        yield result_of(games[number], found)


def _results(
    games: Sequence[Game], jobs: Sequence[Job], each: int, trials: int, workers: int,
    say: Callable[[str], None],
) -> Iterator[dict[str, tuple[Fitted, Scored]]]:  # fmt: skip
    """By game, what its systems gave, by name."""
    with sharing(games, workers) as run:
        done = run(partial(_work, trials), jobs)
        for first in range(0, len(jobs), each):
            found = {}
            for number, system in jobs[first : first + each]:
                found[system.name] = next(done)
                say(f"{games[number].name}: {system.name}")
            yield found
