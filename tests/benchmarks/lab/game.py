"""Games: seasons of rounds, unchanged or cut into other rounds, and the end of the first part."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from stream_rater.columns.arrays import Ints
from stream_rater.contract.events import Round
from stream_rater.evaluation.evaluation import trained
from stream_rater.evaluation.season import Session, before
from stream_rater.rating.model import DID_NOT_FINISH, LAST, Places
from stream_rater.replay.pool import ONE_WAVE
from stream_rater.rounds.batch import NO_ROUNDS, NO_SCORES, NO_SEATS, RoundBatch, of_entries

BLOCK_ROUNDS = 1000  # The number of synthetic rounds that are joined into one block.


def singly(sessions: Iterable[Session]) -> list[Session]:
    """Each round as a session of its own, in the order of the season."""
    found: list[tuple[int, Session]] = []
    for session in sessions:
        numbers, without = session.numbers.tolist(), replace(session, seeds=())
        for i, number in enumerate(numbers):
            whole = session if number == min(numbers) else without
            found.append((number, whole.take(np.array([i]))))
    return [session for _, session in sorted(found, key=lambda each: each[0])]


def in_blocks(sessions: Iterable[Session]) -> Iterator[Session]:
    """Join sessions of one round, without seeds, of one ladder, into blocks like a file's."""
    block: list[Session] = []
    for session in sessions:
        block.append(session)
        if len(block) == BLOCK_ROUNDS:
            yield _joined(block)
            block = []
    if block:
        yield _joined(block)


def _joined(sessions: Sequence[Session]) -> Session:
    return Session.of(
        sessions[-1].ladder, sessions[-1].players, np.concatenate([each.rows for each in sessions]),
        RoundBatch.concat([each.rounds for each in sessions]),
        np.concatenate([each.numbers for each in sessions]),
    )  # fmt: skip


def split(session: Session, size: int, rng: np.random.Generator) -> Session:
    """A copy of a session whose rounds are split at random into rounds of at most `size` entries.
    Entries keep their order (paper, section 6.5). A remainder of fewer than two entries is dropped.
    The parts of a round have its number. A round with teams cannot be split: it fails an
    assertion."""

    def deal(whole: RoundBatch, dealt: Ints) -> Iterator[tuple[Ints, RoundBatch]]:
        for first in range(0, len(dealt), size):
            chosen = np.sort(dealt[first : first + size])
            if len(chosen) >= 2:
                yield chosen, _with_entries(whole, chosen)

    return dealt(session, deal, rng)


Deal = Callable[[RoundBatch, Ints], Iterator[tuple[Ints, RoundBatch]]]
"""Takes a round without teams, and its entries in random order. Yields, for each new round, its
entries and the round."""


def dealt(session: Session, deal: Deal, rng: np.random.Generator) -> Session:
    """A copy of a session whose rounds are replaced by those that `deal` makes of them."""
    rows, rounds, start, parts = [], [], 0, [0]
    for each in session.rounds:
        whole = each.batch
        entries = len(whole.place)
        assert entries == len(whole.share), "a round with teams cannot be dealt"
        for chosen, made in deal(whole, rng.permutation(entries)):
            rows.append(session.rows[start + chosen])
            rounds.append(made)
        start += entries
        parts.append(len(rounds))
    ends = np.array(parts)  # round r became the rounds parts[r] : parts[r + 1]
    return replace(
        session, rows=np.concatenate(rows) if rows else session.rows[:0],
        rounds=RoundBatch.concat(rounds) if rounds else session.rounds.slice(0, 0),
        waves=np.unique(ends[session.waves]), numbers=np.repeat(session.numbers, np.diff(ends)),
    )  # fmt: skip


def _with_entries(whole: RoundBatch, entries: Ints) -> RoundBatch:
    """A round without teams and names, reduced to these entries."""
    size = np.array([len(entries)])
    return structs.replace(
        whole, entries=size, sizes=size, place=whole.place[entries],
        members=whole.members[entries], share=whole.share[entries],
        seat=of_entries(whole.seat, entries), score=of_entries(whole.score, entries),
    )  # fmt: skip


def deal_teams(session: Session, size: int, rng: np.random.Generator) -> Session:
    """A copy whose rounds are dealt at random into rounds of two teams of `size`. Ties share the
    mean of their ranks; the team with the lower sum of ranks is better, equal sums are a draw. A
    remainder is dropped. The parts of a round have its number. AssertionError for a round with
    teams."""

    def deal(whole: RoundBatch, dealt: Ints) -> Iterator[tuple[Ints, RoundBatch]]:
        for first in range(0, len(dealt) - 2 * size + 1, 2 * size):
            chosen = dealt[first : first + 2 * size]
            sums = _doubled_ranks(whole.place[chosen]).reshape(2, size).sum(axis=1)
            better = np.argsort(sums, kind="stable")
            place = np.array([1, 1 if sums[0] == sums[1] else 2], whole.place.dtype)
            teams = chosen.reshape(2, size)[better].ravel()
            yield teams, _of_two_teams(whole, place, teams)

    return dealt(session, deal, rng)


def _doubled_ranks(place: Places) -> Ints:
    """Twice the rank of each place among these; twice the mean rank of a tie is an integer."""
    place = np.where(place == DID_NOT_FINISH, LAST, place)
    less = (place[:, None] > place[None, :]).sum(axis=1)
    equal = (place[:, None] == place[None, :]).sum(axis=1)
    found: Ints = 2 * less + equal + 1
    return found


def _of_two_teams(whole: RoundBatch, place: Places, entries: Ints) -> RoundBatch:
    """A round of two teams of one size, the better one's first; no names, seats and scores."""
    return structs.replace(
        whole, entries=np.array([2]), sizes=np.array([len(entries)]), place=place,
        members=np.full(2, len(entries) // 2), share=whole.share[entries],
        seat=NO_SEATS, score=NO_SCORES,
    )  # fmt: skip


# --- seasons dealt in other ways ------------------------------------------------------------------

TRAIN = 0.1
SEED = 1


@dataclass(frozen=True, slots=True)
class Game:
    name: str
    sessions: Sequence[Session]
    boundary: int  # The first round that is scored; systems are tuned on the rounds before it.

    @property
    def first(self) -> list[Session]:
        return before(self.sessions, self.boundary)

    def sizes(self) -> list[int]:
        return [int(each) for session in self.sessions for each in session.rounds.entries]


BARE = "without seats and scores"


def bare(session: Session) -> Session:
    """A copy without the optional fields."""
    rounds = structs.replace(session.rounds, seat=NO_SEATS, score=NO_SCORES)
    return replace(session, rounds=rounds)


def games_of(
    name: str, sessions: Sequence[Session], cut: Sequence[int] = (), teams: int | None = None,
    *, whole: bool = True,
) -> Iterator[Game]:  # fmt: skip
    """The season unchanged and, where it has such fields, BARE, both if `whole`; cut into rounds of
    each size in `cut`, and dealt into two teams of `teams`. A season with teams is neither; nor is
    one without a round large enough for two such rounds. Parts of a round stay on one side of the
    boundary."""
    boundary = trained(sum(len(each.rounds) for each in sessions), TRAIN)
    if whole:
        yield Game(name, sessions, boundary)
        if any(len(each.rounds.seat) or len(each.rounds.score) for each in sessions):
            yield Game(f"{name}, {BARE}", list(map(bare, sessions)), boundary)
    if any(len(each.rounds.place) != len(each.rounds.share) for each in sessions):
        return
    largest = max((int(each.rounds.entries.max()) for each in sessions), default=0)
    for size in cut:
        if 2 * size <= largest:
            rng = np.random.default_rng(SEED)
            yield Game(f"{name}, {size}", [split(each, size, rng) for each in sessions], boundary)
    if teams is not None and 4 * teams <= largest:
        rng = np.random.default_rng(SEED)
        dealt = [deal_teams(each, teams, rng) for each in sessions]
        yield Game(f"{name}, {teams} against {teams}", dealt, boundary)


# --- made-up seasons ------------------------------------------------------------------------------

SKILL, SPREAD, PERFORMANCE, CHANGE = 1500.0, 350.0, 200.0, 35.0
DAY_S = 86_400
BEGIN_S = 1_600_000_000


@dataclass(frozen=True, slots=True)
class Kind:
    """The size of a season: its players, its rounds, and the players in each round."""

    players: int
    rounds: int
    per_round: int


SMALL = Kind(players=1_000, rounds=15_000, per_round=5)
LARGE = Kind(players=10_000, rounds=50, per_round=10_000)


def season(kind: Kind, seed: int) -> Iterator[Session]:
    """Yield the sessions of a season. Each has one round, and rounds are a day apart."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(SKILL, SPREAD, kind.players)
    scale = PERFORMANCE * math.sqrt(3.0) / math.pi
    for number in range(kind.rounds):
        rows = rng.permutation(kind.players)[: kind.per_round]
        performance = rng.logistic(skill[rows], scale)
        skill[rows] += rng.normal(0.0, CHANGE, len(rows))
        yield session(rows[np.argsort(-performance)], kind.players, number)


def session(rows: Ints, players: int, number: int) -> Session:
    """A session of one round, in which the players in these rows came first, second, and so on."""
    entries = len(rows)
    size = np.array([entries])
    rounds = RoundBatch(
        heads=[Round(round_id=f"r{number}", ladder="synthetic", completed_at="")],
        time=np.array([BEGIN_S + number * DAY_S]), weight=np.ones(1), ceiling=np.full(1, np.inf),
        config_index=np.zeros(1, np.int64), unknown=np.zeros(1, np.bool_), entries=size, sizes=size,
        place=np.arange(1, entries + 1, dtype=np.int32), members=np.ones(entries, np.int64),
        share=np.ones(entries), names=NO_ROUNDS.names,
    )  # fmt: skip
    return Session("synthetic", players, rows, rounds, ONE_WAVE, np.array([number]))
