"""Rounds and corrections that are sent during faults, and the replay of the edited log."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from stream_rater.adapters.kafka.reader import read_all
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.memory import Log
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import RatingChanged, joined, rating_changed_from_json, to_json
from stream_rater.contract.record import header
from stream_rater.contract.seeds import SEEDS
from stream_rater.pipeline.updater.rating_events import CORRECTION
from tests.chaos.season import Season, Tally, Who, compared, seeded, stored_records
from tests.integration.topics import Bytes, headers_of, produce, read_topic
from tests.rounds import ranked
from tests.simulation.oracle import replay
from tests.simulation.truth import EventValues, WrittenBy, values_of

LADDERS = ("duels", "lobbies", "ranked")
CROWD = "crowd"  # A ladder without corrections. Its rounds make work on others longer.
PLAYERS, LOBBY = 40, 6
SECOND_ACCOUNTS = 10  # So many players have a second account, never in the same round.

Rejected = tuple[int, int, str]  # partition, offset and code


class CorrectedSeason(Season):
    def __init__(self, settings: Settings, rounds: Iterator[dict[str, Any]]) -> None:
        super().__init__(settings, rounds)
        self._random = Random(seeded(11))
        self._sent: dict[str, list[dict[str, Any]]] = {}
        self._seasons = 0
        self.corrections = 0  # how many were sent

    def play(self, count: int) -> list[dict[str, Any]]:
        events = [event for _, event in zip(range(count), self._rounds, strict=False)]
        produce(self._settings, [Bytes(to_json(e), e["ladder"].encode()) for e in events])
        for event in events:
            self._sent.setdefault(event["ladder"], []).append(event)
        return events

    def correct(self, count: int) -> int:
        """Send this many corrections, any of which may be refused. Returns the greatest offset."""
        some = [self._correction() for _ in range(count)]
        self.corrections += count
        return max(each.offset() or 0 for each in produce(self._settings, some))

    def _correction(self) -> Bytes:
        random = self._random
        ladder = random.choice(LADDERS)
        kind = random.choices(list(KINDS), list(SHARES.values()))[0]
        about: dict[str, Any] = {"ladder": ladder, **KINDS[kind](random, self._sent[ladder])}
        if kind == "season-started":
            self._seasons += random.random() < 0.8
            about["season"] = self._seasons
        elif kind != "corrections-applied" and random.random() < 0.2:
            about["batched"] = True
        return Bytes(to_json(about), ladder.encode(), [(EVENT_TYPE, kind.encode())])

    def tally(self) -> Tally:
        """The tally of rating-changed, of the rejections and of the store's beliefs."""
        at, topics = self._settings, Topics.of(self._settings)
        log = Log(at.partitions, at.shards)
        for record in read_all(at, topics.rounds, at.partitions):
            log.rounds[record.partition].append(record)
        expected = replay(log, ladders_of_settings(at), at.duplicate_window)
        messages = read_topic(self._settings, topics.changed)
        found = corrected_tally(
            expected.changes, (rating_changed_from_json(m.value() or b"") for m in messages)
        )
        rejected = [
            (int(header(h, "source-partition")), int(header(h, "source-offset")),
             header(h, "error-code"))
            for h in (headers_of(m) for m in read_topic(self._settings, topics.rejected))
        ]  # fmt: skip
        found.mistakes += unlike(rejected, expected.rejections)
        found.mistakes += strange(expected.beliefs(WrittenBy.APPLIED), self._settings)
        self.updates = sum(map(len, expected.changes.values()))
        return found


def matches(seed: int = 1) -> Iterator[dict[str, Any]]:
    """Rounds of six players in three ladders, and a crowd's, without end."""
    random, number = Random(seeded(seed)), 0
    while True:
        number += 1
        ladder = (*LADDERS, CROWD)[number % 4]
        players = [f"p{each}" for each in random.sample(range(PLAYERS), LOBBY)]
        if random.random() < 0.3:
            players = [_second(each) for each in players]
        yield {
            "round_id": f"match-{number}", "ladder": ladder, "completed_at": _time(number),
            "standings": ranked(range(1, LOBBY + 1), players),
        }  # fmt: skip


def _second(player: str) -> str:
    return f"{player}-2" if int(player[1:]) < SECOND_ACCOUNTS else player


def _time(number: int) -> str:
    return f"2026-01-{1 + number // 1440 % 28:02}T{number // 60 % 24:02}:{number % 60:02}:00Z"


Sent = Sequence[Mapping[str, Any]]  # a ladder's rounds, in order


def _any_id(random: Random, sent: Sent) -> str:
    """The id of a round: mostly of one that was just sent, or of none."""
    last = sent[-30:] if random.random() < 0.5 else sent
    return random.choice(last)["round_id"] if random.random() < 0.95 else "match-0"


def _voided(random: Random, sent: Sent) -> dict[str, Any]:
    return {"round_id": _any_id(random, sent)}


def _amended(random: Random, sent: Sent) -> dict[str, Any]:
    """Other standings, or a weight that moves nobody by much."""
    round_ = random.choice(sent)
    if random.random() < 0.4:
        return {"round_id": round_["round_id"], "standings": round_["standings"], "weight": 0.9999}
    players = random.sample(range(PLAYERS), LOBBY - 1)
    places = [random.randint(0, 4) for _ in players]
    return {
        "round_id": round_["round_id"], "standings": ranked(places, [f"p{p}" for p in players])
    }  # fmt: skip


def _removed(random: Random, sent: Sent) -> dict[str, Any]:
    """The removal of a player, mostly for a span of time."""
    some = sorted(random.choice(sent)["completed_at"] for _ in range(2))
    player = f"p{random.randrange(PLAYERS + 1)}"
    if random.random() < 0.05:
        return {"player": player}
    return {"player": player, "from": some[0], "until": some[1]}


def _merged(random: Random, _: Sent) -> dict[str, Any]:
    number = random.randrange(SECOND_ACCOUNTS + 1)
    return {"player": f"p{number}-2", "into": f"p{number}"}


KINDS: dict[str, Callable[[Random, Sent], dict[str, Any]]] = {
    "round-voided": _voided, "round-amended": _amended, "player-removed": _removed,
    "player-merged": _merged, "season-started": lambda *_: {"keep": 0.7, "sigma": 120.0},
    "corrections-applied": lambda *_: {},
}  # fmt: skip
SHARES = dict(zip(KINDS, (5, 4, 4, 2, 1, 2), strict=True))  # how often each kind comes


# --- comparing ---


def corrected_tally(
    due: Mapping[Who, Sequence[EventValues]], changes: Iterable[RatingChanged]
) -> Tally:
    """Compare changes with those due. Corrections that move a player too little have none."""
    wanted = {(*who, each.offset): each for who, some in due.items() for each in some}
    return compared(
        wanted, changes, lambda each: (each.ladder, each.player, each.offset), _mistakes
    )


def _mistakes(change: RatingChanged, expected: EventValues) -> Iterator[str]:
    of = change.correction
    own: tuple[str, ...] = (change.round_id,)
    if of is not None and of.cause not in SEEDS:
        own = CORRECTION, str(change.offset)
    if change.event_id != joined(change.ladder, *own, change.player):
        yield f"{change.event_id}: not the id of {change.player} at {change.offset}"
    if values_of(change) != expected:
        yield f"{change.event_id}: {values_of(change)}, not {expected}"


def unlike(rejected: Sequence[Rejected], due: Sequence[Rejected]) -> Iterator[str]:
    if sorted(rejected) != sorted(due):
        yield f"rejected: not due {set(rejected) - set(due)}, missing {set(due) - set(rejected)}"


def strange(due: Mapping[Who, bytes], settings: Settings) -> Iterator[str]:
    """Lines for players whose record in the store is not the expected one, to the bit."""
    for who, data in stored_records(due, settings):
        if data != due[who]:
            yield f"{who}: the store has another belief"
