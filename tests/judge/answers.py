"""Judges what was seen by HTTP: each answer is a state that existed, and a connection never goes
back in time. The states of a player on one connection are a queue, and the player's events in their
order must pass through it. For a standalone process, streams must have all acknowledged rounds."""

import re
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from tests.judge.accepted import Reasons, standings
from tests.judge.changes import Event, Last, broken, decode, named, shown
from tests.judge.observations import Answered, Findings, Sent, Streamed

PATH = re.compile(r"/v1/ladders/([^/?]+)/(players/[^/?]+|players:lookup|leaderboard)(/history)?")
NUMBERS = ("mu", "sigma", "rating", "rounds", "provisional", "completed_at", "season")
HISTORY = ("mu", "sigma", "rating", "rounds", "previous_rating", "round_id", "completed_at", "rank")

Who = tuple[str, str]


class State(msgspec.Struct):
    where: str  # the connection and the question
    numbers: Mapping[str, Any] = {}  # What the event must say; empty if there was none.
    offset: int | None = None  # of the event; None if the answer has none, as rows of a board
    absent: bool = False  # whether the answer was that the player has no rounds
    at_least: int = -1  # the `min_offset` of the question
    next_only: bool = False  # whether it must be the very next event, as in a stream
    stale: str = ""  # the event up to `at_least` that the answer does not include
    existed: bool = False  # whether an event says the same, whatever came before on this connection


class Seer:
    def __init__(self) -> None:
        self.states: deque[State] = deque()
        self.newest = -1  # the offset of the last event that was passed


class Answers:
    """Collects all answers first, and then compares them with the events as these come."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._seers: dict[Who, dict[str, Seer]] = {}
        self._histories: dict[Who, dict[int, list[State]]] = {}
        self._promised: dict[Who, list[State]] = {}  # answers to questions with `min_offset`

    # --- collecting ---

    def stream(self, seen: Streamed) -> None:
        if seen.event != "rating-changed":
            self._findings.left_open["streams that were reset"] += 1
            for who, seers in self._seers.items():
                if who[0] == seen.ladder and seen.c in seers:
                    seers[f"{seen.c} before {seen.at}"] = seers.pop(seen.c)
            return
        body = msgspec.json.decode(seen.data)
        for name in ("tier", "previous_tier"):
            body.pop(name, None)
        seer = self._seer((seen.ladder, body["player"]), seen.c)
        where = f"{seen.c} id {seen.id}"
        if seer.states and body["offset"] <= (before := seer.states[-1].offset or 0):
            self._findings.wrong(
                "stream", f"{seen.ladder}:{body['player']}", where,
                f"the event at {body['offset']} came after that at {before}",
            )  # fmt: skip
        seer.states.append(State(where, body, body["offset"], next_only=bool(seer.states)))
        self._findings.checked["streamed events"] += 1

    def answer(self, seen: Answered) -> None:
        match = PATH.match(seen.path)
        if match is None or seen.status not in (200, 404):
            self._findings.left_open["answers of other kinds"] += 1
            return
        ladder, what = unquote(match[1]), match[2]
        query = parse_qs(seen.path.partition("?")[2])
        least = int(query["min_offset"][0]) if "min_offset" in query else -1
        body = msgspec.json.decode(seen.body)
        self._findings.checked["answers"] += 1
        where = f"{seen.c} {seen.path}"
        if seen.status == 404:
            if what.startswith("players/") and body.get("code") == "unknown-player":
                player = unquote(what.partition("/")[2])
                self._add((ladder, player), seen.c, State(where, absent=True, at_least=least))
        elif match[3]:
            self._history(ladder, body, seen.c, where, whole="before" not in query)
        elif what == "leaderboard":
            self._board(ladder, body, seen.c, where, least)
        else:
            rows = body["players"] if what == "players:lookup" else [body]
            if seen.ask and [row["player"] for row in rows] != seen.ask:
                self._findings.wrong("lookup", ladder, where, "other players than it asked for")
            for row in rows:
                self._player(ladder, row, seen.c, where, least)

    def _player(self, ladder: str, row: Any, connection: str, where: str, least: int) -> None:
        numbers = {name: row[name] for name in NUMBERS}
        state = State(where, numbers, row["offset"], row["rounds"] == 0, least)
        self._add((ladder, row["player"]), connection, state)

    def _board(self, ladder: str, body: Any, connection: str, where: str, least: int) -> None:
        rows = body["rows"]
        order = [(-row["rating"], row["player"].encode()) for row in rows]
        ranks = [row["rank"] for row in rows]
        if order != sorted(set(order)) or ranks != sorted(ranks) or len(rows) > body["listed"]:
            self._findings.wrong("board", ladder, where, "rows out of order, or twice")
        for row in rows:
            state = State(where, {"rating": row["rating"]}, at_least=least)
            self._add((ladder, row["player"]), connection, state)

    def _history(self, ladder: str, body: Any, connection: str, where: str, *, whole: bool) -> None:
        """Take a player's changes. `whole`: they begin with the newest one, as answers do."""
        offsets = [each["offset"] for each in body["changes"]]
        if offsets != sorted(set(offsets), reverse=True):
            self._findings.wrong("history", body["player"], where, "changes out of order, or twice")
        known = self._histories.setdefault((ladder, body["player"]), {})
        for each in body["changes"]:
            state = State(where, {name: each[name] for name in HISTORY}, each["offset"])
            known.setdefault(each["offset"], []).append(state)
        self._findings.checked["histories"] += 1
        for newest in body["changes"][:1] if whole else ():
            numbers = {name: newest[name] for name in HISTORY if name in NUMBERS}
            state = State(where, numbers, newest["offset"])
            self._add((ladder, body["player"]), connection, state)

    def _seer(self, who: Who, connection: str) -> Seer:
        return self._seers.setdefault(who, {}).setdefault(connection, Seer())

    def _add(self, who: Who, connection: str, state: State) -> None:
        self._findings.checked["states of players in answers"] += 1
        states = self._seer(who, connection).states
        if not states or not _says_no_more(state, states[-1]):
            states.append(state)
        if state.at_least >= 0:
            self._findings.checked["states with min_offset"] += 1
            self._promised.setdefault(who, []).append(state)

    # --- comparing ---

    def begin(self) -> None:
        """All answers are there, and no event came yet: let those pass that saw no event."""
        for seers in self._seers.values():
            for seer in seers.values():
                while seer.states and seer.states[0].absent:
                    seer.states[0].existed = True
                    seer.states.popleft()

    def event(self, event: Event) -> None:
        who = event.ladder, event.player
        for state in self._histories.get(who, {}).pop(event.offset, ()):
            self._compare(state, event)
        for state in self._promised.get(who, ()):
            self._promise(state, event)
        for seer in self._seers.get(who, {}).values():
            self._pass(seer, event)

    def _compare(self, state: State, event: Event) -> None:
        if unlike := _unlike(state, event):
            self._findings.wrong(
                "history", event.event_id, state.where, f"{unlike} are not those of the event"
            )

    def _promise(self, state: State, event: Event) -> None:
        """An answer with `min_offset` must not be older than an event up to it."""
        if event.offset <= state.at_least:
            state.stale = "" if _shows(state, event) else event.event_id
        elif state.stale and _shows(state, event):
            state.stale = ""

    def _pass(self, seer: Seer, event: Event) -> None:
        for state in seer.states:
            if state.offset == event.offset and not state.absent:
                state.existed = not _unlike(state, event)
            elif state.offset is None and not _unlike(state, event):
                state.existed = True
        moved = False
        while seer.states and _shows(seer.states[0], event):
            seer.states.popleft()
            moved = True
        if moved:
            seer.newest = event.offset
        elif seer.states and seer.states[0].next_only and seer.newest >= 0:
            seer.states[0].next_only = False
            self._findings.wrong(
                "stream", event.event_id, seer.states[0].where,
                f"the stream had the event at {seer.newest} and then passed over this one",
            )  # fmt: skip

    def finish(self) -> None:
        for (ladder, player), seers in self._seers.items():
            for connection, seer in seers.items():
                for state in list(seer.states)[:1]:
                    rule = "back in time" if state.existed else "no such state"
                    self._findings.wrong(
                        rule, f"{ladder}:{player}", state.where,
                        f"{dict(state.numbers)} at {state.offset}, after the event at "
                        f"{seer.newest} on connection {connection}",
                    )  # fmt: skip
        for (ladder, player), promised in self._promised.items():
            for state in promised:
                if state.stale:
                    self._findings.wrong(
                        "min_offset", f"{ladder}:{player}", state.where,
                        f"{dict(state.numbers)} at {state.offset} is without {state.stale}",
                    )  # fmt: skip
        for (ladder, player), known in self._histories.items():
            for offset, states in known.items():
                for state in states:
                    self._findings.wrong(
                        "no such state", f"{ladder}:{player}", state.where, f"no event at {offset}"
                    )


def _says_no_more(state: State, last: State) -> bool:
    """Whether an event that explains the last state on the connection explains this one, too."""
    if state.absent or last.absent:
        return state.absent and last.absent
    return state.offset in (None, last.offset) and state.numbers.items() <= last.numbers.items()


def _unlike(state: State, event: Event) -> list[str]:
    return [
        name for name, value in state.numbers.items()
        if name in Event.__struct_fields__ and name != "correction"
        and getattr(event, name) != value
    ]  # fmt: skip


def _shows(state: State, event: Event) -> bool:
    """Whether a state is the one after this event."""
    if state.absent:
        return event.rounds == 0
    return state.offset in (None, event.offset) and not _unlike(state, event)


STATE = re.compile(r"/v1/ladders/([^/?]+)/rounds/([^/?]+)")
SAID = (
    "rank", "mu", "sigma", "previous_mu", "previous_sigma", "rating", "previous_rating", "rounds",
)  # fmt: skip

Name = tuple[str, str]  # ladder and round id


class Door:
    """Compares acknowledged rounds with one stream of each ladder, which is followed from the start
    and resumed by its last id. It has every event once, unless the API says `reset`."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._sent: dict[Name, Mapping[str, int | None]] = {}  # the rank of each player of a round
        self._acknowledged: dict[Name, tuple[int, int]] = {}
        self._seen: Counter[tuple[str, str, str]] = Counter()  # by ladder, round and player
        self._last: dict[Name, Last] = {}
        self._reset: set[str] = set()  # ladders whose stream had a gap
        self._streams: dict[str, str] = {}  # of each ladder, the stream that is judged
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
        """Judge a round's state: pending, rated, or a duplicate. Its changes must be the events."""
        self._findings.checked["states of rounds"] += 1
        where = f"state of {name[1]} at {state['partition']}@{state['offset']}"
        if state["state"] == "rejected" and state["code"] != "duplicate-round":
            self._findings.wrong("verdict", name, where, f"{state['code']}: {state['detail']}")
        players = {each["player"] for each in state["changes"]}
        if state["state"] == "rated" and state["changes_complete"] and (
            players != self._sent.get(name, {}).keys()
        ):  # fmt: skip
            self._findings.wrong("state", name, where, f"changes of {sorted(players)}")
        for each in state["changes"]:
            event = self._said.get((*name, each["player"]))
            if event is None:
                if name[0] not in self._reset:
                    self._findings.wrong("state", name, where, f"no event of {each['player']}")
            elif unlike := [key for key in SAID if each.get(key) != getattr(event, key)]:
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
