"""Judges the changes of players: each player has a total order of events, every event begins where
the last one ended, and for each accepted round each of its players has exactly one event."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tests.judge.accepted import ROUND, SEEDS, partition_of
from tests.judge.edited import EditedLadder
from tests.judge.observations import Findings, Run, Seen

DISPLAYED = 2.0  # how many sigmas are subtracted by default
MU_SHOWN = {"codeforces", "glicko2", "elo", "pairwise-elo", "plackett-luce", "thurstone"}
ELO_MMR = {"elo-mmr", "elo-mmx", "elo-r"}
DRIFTING = {"elo-mmr", "elo-mmx", "two-moment"}  # by the day
LIKE_NEWCOMERS_OF_THEIR_FIELD = {"glicko", "bar", "trueskill", "two-moment"}
CLOSE = 1e-6  # relative: a belief keeps the digits of a float of 32 bits
NEAR = 0.1  # points: by so much a performance may be another, which is tabulated in large rounds
MOST_ENTRIES = 30  # of a round whose performances are checked: it takes the square of them


class Documented:
    """What a ladder's parameters say, by the names and defaults of the reference."""

    def __init__(self, rating: Mapping[str, Any]) -> None:
        get, self._system = rating.get, rating["system"]
        self.mu, self.sigma = float(get("initial_mu", 1500)), float(get("initial_sigma", 350))
        self.provisional_rounds: int = get("provisional_rounds", 5)
        self.begins_elsewhere = self._system in LIKE_NEWCOMERS_OF_THEIR_FIELD or "fixed" in rating
        self._floor = -math.inf if get("floor") is None else float(rating["floor"])
        drift = get("drift_per_day", 16 if self._system == "two-moment" else 0)
        self._spread = _spread(rating) if self._system == "elo-mmr" else None
        limit = float(get("sigma_limit") or (100 if self._system == "elo-r" else 0))
        limit = limit if self._spread is None else self._spread[1]
        self._times, self._from = DISPLAYED, limit if self._system in ELO_MMR else 0.0
        display = get("display")
        if isinstance(display, Mapping):
            self._times, self._from = float(display["minus_sigma"]), 0.0
        elif display == "mu" or self._system in MU_SHOWN or (drift and self._system in DRIFTING):
            self._times = 0.0
        self._tie = 0.5 if get("ties") == "split" else 1.0
        self._plain = self._spread is not None and not (
            drift or get("newcomer_weights") or get("dnf") == "not-compared"
        )
        self._seats = set(get("seats") or ())

    def shown(self, mu: float, sigma: float) -> float:
        return max(mu - self._times * (sigma - self._from), self._floor)

    def wrong(self, event: Any, *, is_first: bool) -> Iterator[tuple[str, str]]:
        """The rules that an event breaks by itself, with what it must say."""
        shown = self.shown(event.mu, event.sigma)
        before = self.shown(event.previous_mu, event.previous_sigma)
        if not (_same(event.rating, shown) and _same(event.previous_rating, before)):
            yield "display", f"{before:.9g}->{shown:.9g}"
        if event.provisional != (event.rounds < self.provisional_rounds):
            yield "provisional", f"{self.provisional_rounds} rounds end it"
        began = self.mu if not self.begins_elsewhere else event.previous_mu, self.sigma
        if is_first and not all(map(_same, (event.previous_mu, event.previous_sigma), began)):
            yield "beginning", f"a newcomer has {began}"
        if event.rounds == 0 and not (_same(event.mu, self.mu) and _same(event.sigma, self.sigma)):
            yield "beginning", f"one without rounds has {self.mu}, {self.sigma}"
        if self._system in ELO_MMR and not event.sigma > 0.0:
            yield "sigma", "it is above 0"

    def judges(self, body: Mapping[str, Any]) -> bool:
        """Whether the numbers of this round can be computed from its events alone."""
        entries = body["standings"]
        return (
            self._plain and len(entries) <= MOST_ENTRIES and "performance_ceiling" not in body
            and all("player" in each and each.get("seat") not in self._seats for each in entries)
        )  # fmt: skip

    def performed(self, round_weight: float, field: Sequence[Any]) -> Iterator[tuple[Any, str]]:
        """By stages 1 and 2 of the mathematics, the events of a round whose numbers are wrong."""
        assert self._spread is not None
        weight, limit = self._spread[0] * round_weight, self._spread[1]
        skill, noise = weight * limit**2, (1.0 + 1.0 / weight) * limit**2
        before = [each.previous_sigma**2 + skill for each in field]
        steep = [math.pi / math.sqrt(3.0 * (each + noise)) for each in before]
        for each, variance in zip(field, before, strict=True):
            x = each.performance
            if (
                not self._excess(x - NEAR, each, field, steep)
                < 0.0
                < self._excess(x + NEAR, each, field, steep)
            ):
                yield each, "performance is not the root of its equation"
            if not _same(each.sigma, 1.0 / math.sqrt(1.0 / variance + 1.0 / noise)):
                yield each, "sigma"
            least, most = sorted((each.previous_mu, x))
            slack = 0.01 * each.previous_sigma
            if not least - slack <= each.mu <= most + slack:
                yield each, f"mu is not towards {x:.6g}"

    def _excess(self, x: float, one: Any, field: Sequence[Any], steep: Sequence[float]) -> float:
        """What the sum over better entries has more than that over worse ones, at x."""
        found = 0.0
        for other, u in zip(field, steep, strict=True):
            loss = 0.5 - 0.5 * math.tanh((other.previous_mu - x) * u / 2.0)
            place, mine = other.rank or math.inf, one.rank or math.inf
            tie = 1.0 if other is one else self._tie
            lost, won = (tie, tie) if place == mine else (place < mine, place > mine)
            found += u * (lost * loss - won * (1.0 - loss))
        return found


def _spread(rating: Mapping[str, Any]) -> tuple[float, float]:
    """Weight and sigma in the limit: gamma^2 = w s^2, beta^2 = (1 + 1/w) s^2."""
    if "sigma_limit" in rating:
        return float(rating["weight_limit"]), float(rating["sigma_limit"])
    gamma, beta = rating["gamma"] ** 2, rating["beta"] ** 2
    limit = (math.sqrt(gamma * gamma + 4.0 * gamma * beta) - gamma) / 2.0
    return gamma / limit, math.sqrt(limit)


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= CLOSE * max(1000.0, abs(a), abs(b))


# --- the numbers of an event ----------------------------------------------------------------------

ESCAPED = str.maketrans({c: f"%{ord(c):02X}" for c in "%:{}"})
"""In keys and event ids, each part is percent-encoded for these characters."""
SPECIAL = re.compile("[%{}]")

RESET_ERROR = 1 / 32 + 0.01  # Of mu after a reset: half a step of the grid, and rounding.


class Cause(msgspec.Struct, frozen=True, gc=False):
    """What an event is of, if it is not of a round."""

    cause: str
    offset: int
    round_id: str = ""


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event of `rating-changed`, as its reference describes it."""

    event_id: str
    ladder: str
    player: str
    round_id: str
    completed_at: str
    rank: int | None
    mu: float
    sigma: float
    previous_mu: float
    previous_sigma: float
    performance: float | None
    rating: float
    previous_rating: float
    rounds: int
    provisional: bool
    offset: int
    season: int | None = None
    correction: Cause | None = None


class Last(NamedTuple):
    offset: int
    mu: float
    sigma: float
    rating: float
    rounds: int
    partition: int
    place: int  # the offset in `rating-changed`

    @classmethod
    def of(cls, event: Event, partition: int, place: int) -> "Last":
        return cls(
            event.offset, event.mu, event.sigma, event.rating, event.rounds, partition, place
        )  # fmt: skip


class Due(msgspec.Struct):
    """What must come of a record of `round-completed`."""

    kind: str
    round_id: str
    completed_at: str
    ranks: dict[str, int | None]  # the players who must have an event, with their ranks
    may: frozenset[str] = frozenset()  # players who may have one
    everyone: bool = False  # whether any player may have one: of a correction
    given: Mapping[str, Mapping[str, Any]] = {}  # by player: the rows of a seed or a reset
    body: Mapping[str, Any] = {}  # the round, if its numbers follow from its events alone
    events: list[Event] = []  # those that came


Early = tuple[Event, Last | None, int, int]
"""An event whose round was not read yet: with the event before it and its own place."""

decode = msgspec.json.Decoder(Event).decode


def named(*parts: str) -> str:
    found = ":".join(parts)
    if found.count(":") < len(parts) and not SPECIAL.search(found):
        return found
    return ":".join(part.translate(ESCAPED) for part in parts)


def broken(event: Event, last: Last, rating: float) -> Iterator[str]:
    """The rules that an event breaks by what came before. `rating`: where it must begin."""
    if event.offset <= last.offset:
        yield "doubled" if event.offset == last.offset else "order"
    before = event.previous_mu, event.previous_sigma, event.previous_rating
    if before != (last.mu, last.sigma, rating):
        yield "chain"


class Changes:
    """Judges the records of `rating-changed` in the order in which they were read."""

    def __init__(self, run: Run, ladders: Mapping[str, EditedLadder], findings: Findings) -> None:
        self._run, self._ladders, self._findings = run, ladders, findings
        self.last: dict[tuple[str, str], Last] = {}  # the last event of each player
        self._due: dict[tuple[str, int], Due] = {}  # by ladder and offset: what is to come
        self._read: dict[str, int] = {}  # by ladder, the last offset of rounds that was read
        self._early: dict[tuple[str, int], list[Early]] = {}
        self._shards: dict[str, int] = {}  # the partition of each player's events
        self._documented: dict[str, Documented | None] = {}

    def documented(self, ladder: str, offset: int) -> Documented | None:
        """What the parameters of a ladder say at an offset; None if they are not known."""
        if offset >= self._run.redisplayed.get(ladder, offset + 1):
            return None
        if ladder not in self._documented:
            rating = self._run.rated.get(ladder, self._run.rated.get("*"))
            self._documented[ladder] = Documented(rating) if rating else None
        return self._documented[ladder]

    def due(self, ladder: str, offset: int, due: Due) -> None:
        if due.ranks or due.may or due.everyone:
            self._due[ladder, offset] = due

    def passed(self, ladder: str, offset: int) -> None:
        """Say that everything of a ladder up to this offset was read, and is expected."""
        self._read[ladder] = offset
        for early in self._early.pop((ladder, offset), ()):
            self._match(*early)

    def see(self, record: Seen) -> Event | None:
        """Judge a record. Returns its event, if it is one."""
        where = f"rating-changed-{record.p}@{record.o}"
        if record.v is None:
            self._findings.left_open["records without a value (erased players)"] += 1
            return None
        try:
            event = decode(record.value)
        except (msgspec.DecodeError, ValueError) as error:
            self._findings.wrong("shape", record.key, where, f"no event: {error}: {record.v:.200}")
            return None
        self._findings.checked["changes"] += 1
        who = event.ladder, event.player
        last = self.last.get(who)
        self._names(event, record, where)
        if last is not None:
            self._chain(event, last, where)
        if (documented := self.documented(event.ladder, event.offset)) is None:
            self._findings.left_open["changes of ladders whose parameters are not known"] += 1
        else:
            for rule, must in documented.wrong(event, is_first=last is None):
                self._findings.wrong(rule, _who(event), where, f"{must}: {shown(event)}")
        self.last[who] = Last.of(event, record.p, record.o)
        if event.offset <= self._read.get(event.ladder, -1):
            self._match(event, last, record.p, record.o)
        else:
            self._early.setdefault((event.ladder, event.offset), []).append(
                (event, last, record.p, record.o)
            )
        return event

    def _names(self, event: Event, record: Seen, where: str) -> None:
        """Check the key, the id and the partition, and that numbers are numbers."""
        wrong, of = self._findings.wrong, event.correction
        if record.key is not None and record.key.encode("latin-1").decode() != named(
            event.ladder, event.player
        ):
            wrong("key", _who(event), where, f"{record.key!r}")
        if of is None or of.cause in SEEDS:
            expected = named(event.ladder, event.round_id, event.player)
        else:
            expected = named(event.ladder, "correction", str(event.offset), event.player)
        if event.event_id != expected:
            wrong("id", _who(event), where, f"{event.event_id!r}, not {expected!r}")
        if self._run.shards:
            shard = self._shards.get(event.player)
            if shard is None:
                shard = partition_of(event.player, self._run.shards)
                self._shards[event.player] = shard
            if shard != record.p:
                wrong("shard", _who(event), where, f"not in {shard}: {shown(event)}")
        if not math.isfinite(event.mu + event.rating + event.sigma) or event.sigma < 0.0:
            wrong("numbers", _who(event), where, shown(event))
        if of is not None and of.offset != event.offset:
            wrong("cause", _who(event), where, f"{of} in {shown(event)}")

    def _chain(self, event: Event, last: Last, where: str) -> None:
        """Check that the event follows the last one, and begins where it ended."""
        rating = last.rating
        if last.offset < self._run.redisplayed.get(event.ladder, -1) <= event.offset:
            self._findings.left_open["ratings before a change of their display"] += 1
            rating = event.previous_rating
        for rule in broken(event, last, rating):
            self._findings.wrong(rule, _who(event), where, f"{shown(event)} after {last}")

    def _match(self, event: Event, last: Last | None, partition: int, place: int) -> None:
        where = f"rating-changed-{partition}@{place}"
        due, wrong = self._due.get((event.ladder, event.offset)), self._findings.wrong
        kind = event.correction.cause if event.correction else ROUND
        if due is None or not (
            event.player in due.ranks or event.player in due.may or due.everyone
        ):
            wrong("of nothing", _who(event), where, f"nothing accepted is due for {shown(event)}")
            return
        if kind != due.kind:
            wrong("cause", _who(event), where, f"{kind}, not {due.kind}: {shown(event)}")
        self._count(event, due, last, where)
        ladder = self._ladders[event.ladder]
        if event.season != (season := ladder.season_at(event.offset)):
            wrong("season", _who(event), where, f"{event.season}, not {season}: {shown(event)}")
        if due.everyone:
            self._moved(event, due, where)
            return
        due.may -= {event.player}
        rank = due.ranks.pop(event.player, event.rank)
        self._computed(event, due, where)
        if not due.ranks and not due.may:
            del self._due[event.ladder, event.offset]
        said = event.round_id, event.completed_at, event.rank
        if said != (due.round_id, due.completed_at, rank):
            of = due.round_id, due.completed_at, rank
            wrong("round", _who(event), where, f"{said}, not {of}")
        if (event.performance is None) != (event.correction is not None):
            wrong("performance", _who(event), where, shown(event))

    def _computed(self, event: Event, due: Due, where: str) -> None:
        """Check the numbers of a seed, and those of a round once all its events are there."""
        if row := due.given.get(event.player):
            exact = row.get("mu"), row.get("sigma") if due.kind == SEEDS[0] else None
            pairs = zip(exact, (event.mu, event.sigma), strict=True)
            most = 0.01 if due.kind == SEEDS[0] else RESET_ERROR
            if any(must is not None and abs(must - has) > most for must, has in pairs):
                self._findings.wrong("seed", _who(event), where, f"{row}: {shown(event)}")
        if not due.body or event.performance is None:
            return
        due.events.append(event)
        documented = self.documented(event.ladder, event.offset)
        if due.ranks or documented is None:
            return
        self._findings.checked["rounds whose numbers were computed"] += 1
        for each, what in documented.performed(due.body.get("weight") or 1.0, due.events):
            self._findings.wrong("numbers", _who(each), where, f"{what}: {shown(each)}")

    def _moved(self, event: Event, due: Due, where: str) -> None:
        """Check what a correction's event says, and that it moved the rating as documented."""
        of = event.correction.round_id if event.correction else ""
        said = event.rank, event.performance, event.round_id, of, event.completed_at
        if said != (None, None, due.round_id, due.round_id, due.completed_at):
            self._findings.wrong("correction", _who(event), where, f"{said}: {shown(event)}")
        if abs(event.rating - event.previous_rating) < self._run.threshold:
            self._findings.wrong("too small", _who(event), where, shown(event))

    def _count(self, event: Event, due: Due, last: Last | None, where: str) -> None:
        ladder, player = self._ladders[event.ladder], event.player
        before, since = (0, -1) if last is None else (last.rounds, last.offset)
        if event.offset <= since:
            return
        if player in ladder.touched and any(player in some for _, some in ladder.seeds.values()):
            self._findings.left_open["rounds of seeded players with corrections"] += 1
            return
        expected = before + ladder.counted_between(player, since, event.offset)
        if due.kind in SEEDS:
            expected = due.given.get(player, {}).get("rounds", expected)
        elif not due.everyone:
            expected += 1
        if event.rounds != expected:
            self._findings.wrong(
                "rounds", _who(event), where, f"{event.rounds}, not {expected}: {shown(event)}"
            )

    def finish(self) -> None:
        """Judge what never came, at the end of a run in which everything was rated."""
        for (ladder, offset), due in self._due.items():
            for player in due.ranks:
                last = self.last.get((ladder, player))
                self._findings.wrong(
                    "lost", f"{ladder}:{player}", f"round-completed@{offset}",
                    f"no event of {due.round_id!r}; the last one: {last}",
                )  # fmt: skip
        for (ladder, player), last in self.last.items():
            edited, documented = self._ladders.get(ladder), self.documented(ladder, last.offset)
            if documented is None or edited is None or player in edited.seeded:
                continue
            gone = last.rounds > 0 and edited.counts.get(player) == 0
            newcomer = documented.shown(documented.mu, documented.sigma)
            if gone and abs(last.rating - newcomer) >= self._run.threshold:
                self._findings.wrong(
                    "lost", named(ladder, player), f"rating-changed-{last.partition}@{last.place}",
                    f"no event says that no round counts any more; the last one: {last}",
                )  # fmt: skip
        for (ladder, offset), some in self._early.items():
            for event, _, partition, place in some:
                self._findings.wrong(
                    "of nothing", _who(event), f"rating-changed-{partition}@{place}",
                    f"no record of {ladder} is at {offset}: {shown(event)}",
                )  # fmt: skip


def _who(event: Event) -> str:
    return f"{event.ladder}:{event.player}"


def shown(event: Event) -> str:
    return (
        f"{event.round_id}@{event.offset} {event.previous_mu:.6g}->{event.mu:.6g} "
        f"{event.previous_rating:.6g}->{event.rating:.6g} round {event.rounds}"
    )
