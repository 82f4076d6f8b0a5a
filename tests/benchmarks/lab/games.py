"""Compares our systems with those of other packages, to show which to choose for which *game*.

A *game* is a file of rounds, unchanged, without seats and scores, or cut into small rounds or
teams. Each system forecasts in three ways. *Default* is untuned; *calibrated* is untuned, with the
calibration by the rounds so far (`calibrating`). *Log loss* is tuned on the first TRAIN, a
fraction, of the rounds (`fits`), and taken only if it wins on rounds that its search has not seen
(`validation`). Then the best parameters so far are followed (`following`) and calibrated. So no
round influences its own prediction.

All systems, ours and peers, are tuned, followed and scored (`sides`) alike, with as many trials for
each dimension. If a game has draws, they are a third outcome. Tuning finds the most probable
parameters, not those that overfit a short first part: it minimises total loss plus the sum of
(x - x0)^2 / (2 PRIOR^2), where x is a point in the unit cube of the ranges and x0 the first guess.
Each point that is tried is calibrated, so parameters are chosen by how well they predict who is
better, not by their confidence.

*Ours* is REFERENCE; without it, the first of our systems. Ours and each peer are compared by the
paired bootstrap over the other rounds, tuned; CANDIDATES in all CASES."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import stream_rater
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.evaluation.bootstrap import differences, verdict
from stream_rater.evaluation.executors import sharing
from stream_rater.evaluation.fits import DEFAULT, LOG_LOSS, System
from stream_rater.evaluation.measures import FACTS_OF, FIELDS, Difference
from stream_rater.evaluation.proposal import LEAST_ROUNDS
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.shared_scores import alike, counted, have_draws
from stream_rater.evaluation.sides import Run
from tests.benchmarks.lab import peers
from tests.benchmarks.lab.forward import CALIBRATED, ORDER, ORDER_OF_ALL, Fitted, Scored, fit
from tests.benchmarks.lab.game import BARE, Game

PACKAGE = Path(stream_rater.__file__).parent
CODE = (PACKAGE / "rating", PACKAGE / "evaluation", PACKAGE / "columns", Path(__file__).parent)
"""The folders of the code that decides a result."""


class Unfinished(msgspec.Struct, frozen=True):
    """A system that did not finish a game in time."""

    system: str
    seconds: float

    def sentence(self) -> str:
        """A sentence on what happened."""
        return f"{self.system} did not finish within {self.seconds:g} s"


Outcome = tuple[Fitted, Scored] | Unfinished  # The result of a system on a game.


class _Stored(msgspec.Struct, frozen=True):
    fitted: Fitted | None
    scores: dict[str, tuple[int, bytes]]  # By aim, the number of rounds, and the scores as float64.
    unfinished: Unfinished | None = None


class Saved:
    """The folder of the results. `effort` is anything whose text says how much was tried."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, game: Game, system: System, effort: object) -> Outcome | None:
        """The stored result, or None if there is none or its file cannot be read."""
        try:
            stored = msgspec.msgpack.decode(
                self._path(game, system, effort).read_bytes(), type=_Stored
            )
        except (OSError, msgspec.DecodeError):
            return None
        if stored.fitted is None:
            return stored.unfinished
        return stored.fitted, {
            aim: np.frombuffer(data, np.float64).reshape(rounds, -1).copy()
            for aim, (rounds, data) in stored.scores.items()
        }

    def store(self, game: Game, system: System, effort: object, outcome: Outcome) -> None:
        """Store a result, whole or not at all; not without such a folder, as elsewhere."""
        path = self._path(game, system, effort)
        if not self._folder.is_dir() or path.exists():
            return
        if isinstance(outcome, Unfinished):
            stored = _Stored(None, {}, outcome)
        else:
            fitted, scores = outcome
            stored = _Stored(fitted, {aim: (len(x), x.tobytes()) for aim, x in scores.items()})
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(msgspec.msgpack.encode(stored))
        part.replace(path)

    def _path(self, game: Game, system: System, effort: object) -> Path:
        digest = hashlib.blake2b(digest_size=12)
        digest.update(digest_of(game))
        made_by = (
            system.name, system.space, effort, KERNEL_VERSION, _code(), _version(system.name)
        )  # fmt: skip
        digest.update(repr(made_by).encode())
        name = re.sub(r"[^\w+-]+", "-", f"{game.name}-{system.name}")
        return self._folder / f"{name}-{digest.hexdigest()}.msgpack"


def digest_of(game: Game) -> bytes:
    """A digest of the rounds of a game, and of which of them are scored."""
    digest = hashlib.blake2b(repr((game.name, game.boundary)).encode(), digest_size=32)
    for session in game.sessions:
        digest.update(repr((session.ladder, session.players)).encode())
        for part in _columns(session):
            digest.update(repr((part.dtype.str, part.shape)).encode())
            digest.update(np.ascontiguousarray(part).view(np.uint8).data)
        for seeded in session.seeds:
            digest.update(repr(seeded).encode())
    return digest.digest()


def _columns(session: Any) -> Iterator[Any]:
    """The arrays of a session and of its rounds."""
    own = (session.rows, session.waves, session.numbers)
    rounds = (getattr(session.rounds, name) for name in session.rounds.__struct_fields__)
    yield from (each for each in (*own, *rounds) if isinstance(each, np.ndarray) and each.size)


@cache
def _code() -> str:
    """A digest of the modules that decide a result."""
    digest = hashlib.blake2b(digest_size=16)
    for folder in CODE:
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder.parent)).encode() + path.read_bytes())
    return digest.hexdigest()


def _version(system: str) -> str:
    """The version of a peer's package; empty for others."""
    if system not in peers.MODULES:
        return ""
    module = peers.peer_module(peers.MODULES[system].partition(".")[0])
    return str(getattr(module, "__version__", ""))


# --- results that are kept ------------------------------------------------------------------------

REFERENCE = "two-moment"  # Ours that peers beat least often on these games, which chose it.

COMPARED = (LOG_LOSS, ORDER)  # The measures by which systems are compared.

CANDIDATES = (REFERENCE, "elo-mmr")
"""Those of ours that are compared untuned, too: one of them is what a `Ladder` has by default."""
TUNED = "tuned-tuned"
CASES = {
    "raw-untuned": (DEFAULT, DEFAULT), "calibrated-untuned": (CALIBRATED, CALIBRATED),
    "raw-tuned": (DEFAULT, LOG_LOSS), "calibrated-tuned": (CALIBRATED, LOG_LOSS),
    TUNED: (LOG_LOSS, LOG_LOSS),
}  # fmt: skip
"""What is compared: how ours forecasts and how the peer does."""

CHOSE, ANOTHER = "chose", "another file"
CHOOSING = "codeforces", "cwl", "map-rando", "formula-one", "clubs", "frc", "football", "votes"
"""The files that were looked at when systems and defaults were chosen: all that the project has.
Another file, given by `--file`, only reports."""


def role_of(game: str) -> str:
    """The part that a game's file, the name before the comma, had in choosing."""
    file = game.split(",", maxsplit=1)[0]
    return CHOSE if file in CHOOSING else ANOTHER


def part_of(file: str, cut: str = "") -> str:
    """That of a file, and whether the game, by what is done with the file, is without fields."""
    return role_of(file) + (f", {BARE}" if cut == BARE else "")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of one of our systems with a peer by one measure."""

    ours: str
    peer: str
    measure: str
    difference: Difference  # Our measure minus the peer's.
    verdict: str  # One of `bootstrap.VERDICTS`.
    case: str = TUNED  # One of CASES.


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all systems on a game, and the comparisons of ours with the peers."""

    game: str
    rounds: int
    scored_rounds: int
    sides: float  # The average number of sides of a round.
    systems: list[Fitted]
    ours: str | None  # The name of our system to use (`choose`); None if there is none.
    verdicts: list[Verdict]  # The comparisons of all our systems with all peers, in all cases.
    pairs_scored: int = 0  # Of every system the same: without those that both did not finish.
    draws_scored: int = 0  # Draws among these; all are scored in a game with draws.
    draws_left_out: int = 0
    unfinished_left_out: int = 0
    not_finished: list[Unfinished] = []  # Those that did not finish in time, and have no verdicts.


def choose(systems: Sequence[str]) -> str | None:
    """The name of our system to use among these: REFERENCE, or else the first; None of none."""
    return REFERENCE if REFERENCE in systems else next(iter(systems), None)


def verdicts(ours: Mapping[str, Scored], theirs: Mapping[str, Scored]) -> Iterator[Verdict]:
    """The verdicts on each of ours (by name) against each peer. Order is over the experienced
    sides, or over all if fewer than LEAST_ROUNDS rounds have such."""
    for (name, own), (peer, other) in product(ours.items(), theirs.items()):
        for case in CASES if name in CANDIDATES else (TUNED,):
            one, two = alike([own[CASES[case][0]], other[CASES[case][1]]])
            found = differences(one, two, [*COMPARED, ORDER_OF_ALL])
            weight = FIELDS.index(FACTS_OF[ORDER].weight)
            few = np.count_nonzero(one[:, weight]) < LEAST_ROUNDS
            for measure in (LOG_LOSS, ORDER_OF_ALL if few else ORDER):
                if (gap := found[measure]) is not None:
                    yield Verdict(
                        ours=name, peer=peer, measure=measure, difference=gap,
                        verdict=verdict(measure, gap), case=case,
                    )  # fmt: skip


def result_of(game: Game, outcomes: Mapping[str, Outcome]) -> Result:
    """Make a game's result from those of its systems. The keys are the names of the systems."""
    fitted = {name: each for name, each in outcomes.items() if not isinstance(each, Unfinished)}
    scored = {name: each for name, (_, each) in fitted.items()}
    own = {name: each for name, each in scored.items() if name not in peers.SPACES}
    theirs = {name: each for name, each in scored.items() if name in peers.SPACES}
    numbers = np.concatenate([each.numbers for each in game.sessions])
    sizes = game.sizes()
    some = next((each for every in scored.values() for each in every.values()), None)
    draws = any(have_draws(each.rounds.entries, each.rounds.place) for each in game.sessions)
    of = None if some is None else counted(some, draws=draws)
    return Result(
        game=game.name, rounds=len(numbers), scored_rounds=int((numbers >= game.boundary).sum()),
        sides=sum(sizes) / max(len(sizes), 1), systems=[each for each, _ in fitted.values()],
        ours=choose(list(own)), verdicts=list(verdicts(own, theirs)),
        pairs_scored=of.pairs if of else 0, draws_scored=of.drawn if of else 0,
        draws_left_out=of.drawn_left_out if of else 0,
        unfinished_left_out=of.unfinished_left_out if of else 0,
        not_finished=[each for each in outcomes.values() if isinstance(each, Unfinished)],
    )  # fmt: skip


# --- all of it ------------------------------------------------------------------------------------
Job = tuple[int, System]  # The index of a game, and a system.


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is done for each system on each game."""

    trials: int  # Configurations to try for a system of `forward.USUAL_DIMENSIONS` dimensions.
    seconds: float | None = None  # The time that a system may take on a game. None for any time.


def _work(bounds: Bounds, saved: Saved | None, games: Sequence[Game], job: Job) -> Outcome:
    number, system = job
    game = games[number]
    found = saved.load(game, system, bounds) if saved is not None else None
    if found is None:
        found = _fit(system, game, bounds)
        if saved is not None:
            saved.store(game, system, bounds, found)
    return found


def _fit(system: Any, game: Game, bounds: Bounds) -> Outcome:
    system = system.on(game.first)
    if bounds.seconds is None:
        return fit(system, game, bounds.trials)
    bounded: Any = Bounded(system, bounds.seconds)
    try:
        return fit(bounded, game, bounds.trials)
    except OutOfTime:
        return Unfinished(system.name, bounds.seconds)


def compare(
    games: Sequence[Game], systems: Sequence[System], bounds: Bounds, executor: Executor | None,
    say: Callable[[str], None], saved: Saved | None = None,
) -> Iterator[Result]:  # fmt: skip
    """The results of all games, in order, each as soon as it is known. Jobs, of a game and a
    system, are shared by `executor`'s workers (None: this process); those that are `saved` are not
    done again. Raises MissingExtra without SciPy, and TrialsFailed if the executor fails."""
    jobs = [(number, system) for number in range(len(games)) for system in systems]
    began_s, ended = time.monotonic(), 0
    work = partial(_work, bounds, saved)
    with sharing(games, executor) as run:
        done = run(work, jobs)
        for game in games:
            found = dict[str, Outcome]()
            for system in systems:
                found[system.name] = next(done)
                if saved is not None:  # a worker elsewhere may not share our files
                    saved.store(game, system, bounds, found[system.name])
                ended += 1
                minutes = (time.monotonic() - began_s) / 60.0
                said = _said(found[system.name])
                say(f"{game.name}: {said} ({ended} of {len(jobs)}, {minutes:.1f} minutes)")
            yield result_of(game, found)


def _said(found: Outcome) -> str:
    return found.sentence() if isinstance(found, Unfinished) else found[0].system


# --- a bound on its time --------------------------------------------------------------------------


class OutOfTime(Exception):
    """A system did not finish in time."""


@dataclass
class Bounded:
    """A system that may take so much of this thread's processor time, looked at each session."""

    system: System
    seconds: float
    now: Callable[[], float] = time.thread_time
    _until_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._until_s = self.now() + self.seconds

    def __getattr__(self, name: str) -> Any:
        """What the system has."""
        return getattr(self.system, name)

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        """Rate a season with this configuration. Raises OutOfTime."""
        return self.system.play(self._in_time(sessions), config)

    def _in_time(self, sessions: Iterable[Session]) -> Iterator[Session]:
        for session in sessions:
            if self.now() > self._until_s:
                raise OutOfTime(f"{self.name} did not finish within {self.seconds:g} s")
            yield session
