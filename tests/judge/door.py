"""Judges a run that is seen by HTTP alone, as one of a standalone process: what clients sent, what
was acknowledged, and what the stream of changes had."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from tests.judge.accepted import Reasons, standings
from tests.judge.changes import Event, Last, broken, decode, named, shown
from tests.judge.findings import Findings
from tests.judge.observations import Answered, Sent, Streamed

STATE = re.compile(r"/v1/ladders/([^/?]+)/rounds/([^/?]+)")
SAID = (
    "rank", "mu", "sigma", "previous_mu", "previous_sigma", "rating", "previous_rating", "rounds",
)  # fmt: skip

Name = tuple[str, str]  # ladder and round id


class Door:
    """Compares the rounds that were acknowledged with the changes that were streamed.

    One stream of each ladder is followed from before the first round, and is resumed by its last
    id. So it has every event once, unless the API says `reset`.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._sent: dict[Name, Mapping[str, int | None]] = {}  # the rank of each player of a round
        self._acknowledged: dict[Name, tuple[int, int]] = {}
        self._seen: Counter[tuple[str, str, str]] = Counter()
        """How often a ladder, a round and a player had an event."""
        self._last: dict[Name, Last] = {}
        self._reset: set[str] = set()  # ladders whose stream had a gap
        self._streams: dict[str, str] = {}
        """The stream of each ladder that is judged: the first one."""
        self._events: list[tuple[Event, Streamed]] = []
        self._states: list[tuple[Name, Any]] = []
        self._said: dict[tuple[str, str, str], Event] = {}

    def answer(self, seen: Answered) -> bool:
        """Take the answer about the state of a round. Returns False if it is another answer."""
        match = STATE.match(seen.path)
        if match is None:
            return False
        if seen.status == 200:
            name = unquote(match[1]), unquote(match[2])
            self._states.append((name, msgspec.json.decode(seen.body)))
        return True

    def sent(self, seen: Sent) -> None:
        body = msgspec.json.decode(seen.round)
        name = seen.ladder, body["round_id"]
        entries = standings(Reasons(body))
        self._sent[name] = {player: each.rank for each in entries for player in each.players}
        self._findings.checked["rounds sent by HTTP"] += 1
        if seen.status != 202:
            return
        place = seen.p, seen.o
        self._acknowledged.setdefault(name, place)

    def stream(self, seen: Streamed) -> None:
        if self._streams.setdefault(seen.ladder, seen.c) != seen.c:
            return
        if seen.event == "rating-changed":
            self._events.append((decode(seen.data.encode()), seen))
        else:
            self._reset.add(seen.ladder)

    def finish(self) -> None:
        """Judge all, once everything that was sent is rated."""
        for event, seen in self._events:
            self._judge(event, f"{seen.c} id {seen.id}")
        for (ladder, round_id), place in self._acknowledged.items():
            self._findings.checked["acknowledged rounds"] += 1
            for player in self._sent[ladder, round_id]:
                if self._seen[ladder, round_id, player] or ladder in self._reset:
                    continue
                self._findings.wrong(
                    "lost", named(ladder, player), f"round-completed-{place[0]}@{place[1]}",
                    f"no event of {round_id!r}, which was acknowledged; the last one: "
                    f"{self._last.get((ladder, player))}",
                )  # fmt: skip

        for name, state in self._states:
            self._state(name, state)

    def _state(self, name: Name, state: Any) -> None:
        """A valid round is pending, rated, or repeats one that is; its changes are the events."""
        self._findings.checked["states of rounds"] += 1
        where = f"state of {name[1]} at {state['partition']}@{state['offset']}"
        if state["status"] == "rejected" and state["code"] != "duplicate-round":
            self._findings.wrong("verdict", name, where, f"{state['code']}: {state['detail']}")
        players = {each["player"] for each in state["changes"]}
        if state["status"] == "rated" and state["changes_complete"] and (
            players != self._sent.get(name, {}).keys()
        ):  # fmt: skip
            self._findings.wrong("state", name, where, f"changes of {sorted(players)}")
        for each in state["changes"]:
            event = self._said.get((*name, each["player"]))
            if event is None:
                if name[0] not in self._reset:
                    self._findings.wrong("state", name, where, f"no event of {each['player']}")
            elif unlike := [key for key in SAID if each[key] != getattr(event, key)]:
                self._findings.wrong("state", name, where, f"{unlike}: not as in {event.event_id}")

    def _judge(self, event: Event, where: str) -> None:
        wrong, who = self._findings.wrong, named(event.ladder, event.player)
        self._findings.checked["changes"] += 1
        ranks = self._sent.get((event.ladder, event.round_id))
        if ranks is None or event.player not in ranks:
            wrong("of nothing", who, where, f"nobody sent {shown(event)}")
            return
        if event.rank != ranks[event.player]:
            wrong("round", who, where, f"rank {event.rank}, not {ranks[event.player]}")
        if event.event_id != named(event.ladder, event.round_id, event.player):
            wrong("id", who, where, f"{event.event_id!r}")
        self._seen[event.ladder, event.round_id, event.player] += 1
        self._said[event.ladder, event.round_id, event.player] = event
        if self._seen[event.ladder, event.round_id, event.player] > 1:
            wrong("doubled", who, where, f"{shown(event)} was there before")
        last = self._last.get((event.ladder, event.player))
        if event.ladder not in self._reset:
            self._chain(event, last, where)
        self._last[event.ladder, event.player] = Last.of(event, 0, 0)

    def _chain(self, event: Event, last: Last | None, where: str) -> None:
        who = named(event.ladder, event.player)
        if event.rounds != (1 if last is None else last.rounds + 1):
            self._findings.wrong("rounds", who, where, f"{shown(event)} after {last}")
        if last is not None:
            for rule in broken(event, last, last.rating):
                self._findings.wrong(rule, who, where, f"{shown(event)} after {last}")
