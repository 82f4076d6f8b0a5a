"""Faults that are planted in the service, which the judge must find: in what machines publish or
take as valid, in Kafka's transactions, and in what `serve` answers from. `python -m
tests.chaos.planted NAME run` starts a worker with the fault, `NAME serve` the API with it."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import patch

import msgspec

from stream_rater.adapters.kafka.producers import Transactions
from stream_rater.index.reader import IndexReader
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.ports import CommitSource, Event, Publish, Rejection
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rounds.validation import DuplicateWindow, check
from stream_rater.serve.door.read_your_writes import FreshAnswers

EVERY = 3  # one of so many events, or calls, has the fault

Machine = Generator[Any, Any, Any]
Events = list[Event]


def altered(machine: Machine, alter: Callable[[Any], Any]) -> Machine:
    """A machine that asks for other effects."""
    effect = next(machine)
    while True:
        try:
            outcome = yield alter(effect)
        except Exception as error:
            effect = machine.throw(error)
        else:
            effect = machine.send(outcome)


def _instead(owner: type, alter: Callable[[Any], Any]) -> Any:
    """Let the machines of a class ask for other effects."""
    run = owner.run  # type: ignore[attr-defined]
    return patch.object(owner, "run", lambda self: altered(run(self), alter))


def _publishing(change: Callable[[Events], Events]) -> Any:
    def alter(effect: Any) -> Any:
        if not isinstance(effect, Publish) or not effect.events:
            return effect
        return Publish(change(list(effect.events)), effect.offsets)

    return _instead(Updater, alter)


def _some(change: Callable[[dict[str, Any]], dict[str, Any]], **having: bool) -> Any:
    """Let updaters publish another value in one of EVERY events, or in those of corrections."""
    number = count(1)

    def changed(body: dict[str, Any]) -> dict[str, Any]:
        if having.get("correction"):
            wanted = "correction" in body
        else:
            wanted = body["rounds"] > 1 and not next(number) % EVERY
        return change(body) if wanted else body

    return _all(changed)


def _all(change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Any:
    """Let updaters publish another value in every event; None: leave it out."""

    def changed(events: Events) -> Events:
        bodies = [change(msgspec.json.decode(each.value)) for each in events]
        return [
            msgspec.structs.replace(each, value=msgspec.json.encode(body))
            for each, body in zip(events, bodies, strict=True) if body is not None
        ]  # fmt: skip

    return _publishing(changed)


def _higher(points: float) -> Any:
    """All ratings are too high from each player's third round on; events still join."""
    higher = set[tuple[str, str]]()

    def change(body: dict[str, Any]) -> dict[str, Any]:
        who = body["ladder"], body["player"]
        names = ["previous_mu", "previous_rating"] if who in higher else []
        if body["rounds"] >= 3:
            higher.add(who)
        names += ["mu", "rating"] if who in higher else []
        return body | {name: body[name] + points for name in names}

    return _all(change)


def _window(longer: int) -> Any:
    begin: Any = DuplicateWindow.__init__
    return patch.object(
        DuplicateWindow, "__init__",
        lambda self, window, *more, **named: begin(self, window + longer, *more, **named),
    )  # fmt: skip


def _rejecting(change: Callable[[Sequence[Rejection]], Sequence[Rejection]]) -> Any:
    def alter(effect: Any) -> Any:
        if not isinstance(effect, CommitSource):
            return effect
        return CommitSource(effect.offsets, change(effect.rejections), effect.tails)

    return _instead(Estimator, alter)


def _swapped(events: Events) -> Events:
    """The first two events of a round have each other's ranks."""
    bodies = [msgspec.json.decode(each.value) for each in events]
    for i in range(1, len(events)):
        a, b = bodies[i - 1], bodies[i]
        if a["round_id"] == b["round_id"] and a["rank"] != b["rank"]:
            found = list(events)
            for at, rank in ((i - 1, b["rank"]), (i, a["rank"])):
                value = msgspec.json.encode(bodies[at] | {"rank": rank})
                found[at] = msgspec.structs.replace(events[at], value=value)
            return found
    return events


def _committing_aborted() -> Any:
    """Begin each transaction twice, as after a rebalance. The first abort becomes a commit."""
    stack = ExitStack()
    stack.enter_context(_publishing(lambda events: events))
    stack.enter_context(patch.object(Transactions, "abort", Transactions.commit))
    return stack


def _taking(code: str) -> Any:
    def taking(rounds: Any) -> Any:
        return [None if each and each.code == code else each for each in check(rounds)]

    return patch("stream_rater.rounds.validation.check", taking)


def _answering_from_any_state() -> Any:
    """Some answers show a player as the first answer did; those with `min_offset` are right."""
    answer, first, number = IndexReader.player, dict[Any, Any](), count(1)

    async def player(self: Any, *who: str) -> Any:
        found = await answer(self, *who)
        older = first.setdefault(who, found) if found else None
        return found if self._needed or next(number) % EVERY else older

    return patch.object(IndexReader, "player", player)


def _not_waiting() -> Any:
    async def answer(self: Any, *given: Any) -> Any:
        return await given[-1](self._questions)

    return patch.object(FreshAnswers, "answer", answer)


FAULTS: dict[str, Callable[[], Any]] = {
    "event-twice": lambda: _publishing(lambda events: [*events, events[-1]]),
    "event-skipped": lambda: _publishing(lambda events: events[1:]),
    "previous-of-another": lambda: _some(lambda body: body | {"previous_rating": 1.0}),
    "mu-of-before": lambda: _some(lambda body: body | {"mu": body["previous_mu"]}),
    "ranks-swapped": lambda: _publishing(_swapped),
    "round-not-counted": lambda: _some(lambda body: body | {"rounds": body["rounds"] - 1}),
    "season-left-out": lambda: _some(lambda b: {k: v for k, v in b.items() if k != "season"}),
    "correction-not-added-up": lambda: _some(
        lambda body: body | {"mu": body["previous_mu"], "rating": body["previous_rating"]},
        correction=True,
    ),
    "rejection-lost": lambda: _rejecting(lambda some: some[1:]),
    "rejection-twice": lambda: _rejecting(lambda some: [*some, *some[:1]]),
    "duplicate-rated": lambda: patch.multiple(
        DuplicateWindow, check_all=lambda *_: {}, check=lambda *_: None
    ),
    "invalid-rated": lambda: _taking("too-few-entries"),
    "another-code": lambda: _rejecting(lambda some: [replace(s, code="bad-shares") for s in some]),
    "begins-elsewhere": lambda: _all(
        lambda b: b | {"previous_mu": 1400.0, "previous_rating": 860.0} if b["rounds"] == 1 else b
    ),
    "provisional-turned": lambda: _all(lambda b: b | {"provisional": not b["provisional"]}),
    "performance-higher": lambda: _some(lambda b: b | {"performance": (b["performance"] or 0) + 1}),
    "display-of-another": lambda: _all(
        lambda b: b | {"rating": b["mu"] - 500.0, "previous_rating": b["previous_mu"] - 500.0}
    ),
    "sigma-zero": lambda: _all(lambda b: b | {"sigma": 0.0, "previous_sigma": 0.0}),
    "sigma-higher": lambda: _some(lambda b: b | {"sigma": b["sigma"] + 1.0}),
    "all-higher": lambda: _higher(7.0),
    "correction-of-the-gone-left-out": lambda: _all(lambda b: b if b["rounds"] else None),
    "correction-of-another-round": lambda: _some(lambda b: b | {"round_id": "x"}, correction=True),
    "correction-at-another-time": lambda: _some(
        lambda b: b | {"completed_at": "2026-01-01T00:00:00Z"}, correction=True
    ),
    "seed-not-taken": lambda: _all(
        lambda b: b | {"mu": b["mu"] + 9.0, "rating": b["rating"] + 9.0}
        if b.get("correction", {}).get("cause") == "players-seeded" else b
    ),
    "window-shorter": lambda: _window(-1),
    "window-longer": lambda: _window(1),
    "aborted-is-committed": _committing_aborted,
}  # fmt: skip

IN_SERVE: dict[str, Callable[[], Any]] = {  # Faults of `serve`.
    "older-state-answered": _answering_from_any_state,
    "min-offset-ignored": _not_waiting,
}


def planted(name: str) -> Any:
    """The fault, as a context."""
    return (FAULTS | IN_SERVE)[name]()


def main() -> None:
    name = sys.argv.pop(1)
    with planted(name):
        from stream_rater.cli import app

        app.main()


if __name__ == "__main__":
    main()
