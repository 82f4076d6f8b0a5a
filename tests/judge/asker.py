"""Asks an API what a client may ask, one question after the other, and follows its streams. It asks
about the same players again, so that an answer that goes back in time is noticed."""

import argparse
import http.client
import threading
import time
from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec

from tests.judge.observations import Answered, Line, Seen, Streamed

ANSWER_S, AGAIN_S, PACE_S = 60.0, 0.1, 0.01  # Until a connection is given up; pauses before others.
WAIT_S = 1  # the `wait` of a question with `min_offset`
KNOWN_PLAYERS, OFTEN = 400, 10  # So many of a ladder are asked about, these half of the time.
ROWS, LOOKED_UP = 50, 5  # the rows of a page of the leaderboard, and the players of a lookup
BROKEN = (OSError, http.client.HTTPException, msgspec.DecodeError)  # what ends a connection


class Known:
    """What was read of Kafka, so that one can ask about it."""

    def __init__(self) -> None:
        self.players: dict[str, list[str]] = {}  # some players of each ladder, those who came first
        self.reported: dict[str, int] = {}  # by ladder, the offset of the last round that was read
        self.rated: dict[str, int] = {}  # by ladder, the offset of the last change that was read

    def see(self, record: Seen) -> None:
        """Take a record of Kafka. What is no round and no change is left out."""
        try:
            body = msgspec.json.decode(record.value)
            ladder = str(body["ladder"])
            if record.t == "changed":
                self.rated[ladder] = int(body["offset"])
            elif record.t == "rounds" and isinstance(body["standings"], list):
                known = self.players.setdefault(ladder, [])
                for player in (entry["player"] for entry in body["standings"]):
                    is_new = isinstance(player, str) and player not in known
                    if is_new and len(known) < KNOWN_PLAYERS:
                        known.append(player)
                self.reported[ladder] = record.o
        except (msgspec.DecodeError, LookupError, TypeError, ValueError):
            pass


class Asker:
    """Asks one address, from two threads."""

    def __init__(
        self, given: argparse.Namespace, address: str, number: int, known: Known,
        write: Callable[[Line], None], stop: threading.Event,
    ) -> None:  # fmt: skip
        """`number` makes the names of its connections differ from those of other askers."""
        self._given, self._address, self._name = given, address, f"{given.name}-{number}"
        self._known, self._write, self._stop = known, write, stop
        self._chance = Random(number)

    def ask(self) -> None:
        """Ask one question after the other, on one connection for as long as it lives."""
        count = 0
        while not self._stop.is_set():
            count += 1
            name = f"{self._name}-{count}"
            try:
                with closing(http.client.HTTPConnection(self._address, timeout=ANSWER_S)) as one:
                    one.connect()
                    one.auto_open = 0  # another connection gets another name
                    while not self._stop.is_set():
                        self._round_of_questions(one, name)
            except BROKEN:
                self._stop.wait(AGAIN_S)

    def _round_of_questions(self, one: http.client.HTTPConnection, name: str) -> None:
        listed = self._get(one, name, "/v1/ladders")
        ladders = {*list(self._known.players), *(listed or {}).get("ladders", ())}
        for ladder in sorted(ladders):
            self._about(one, name, ladder)
        self._stop.wait(AGAIN_S)

    def _about(self, one: http.client.HTTPConnection, name: str, ladder: str) -> None:
        """Ask a question of each kind about a ladder."""
        at = f"/v1/ladders/{quote(ladder, safe='')}"
        board = self._get(one, name, f"{at}/leaderboard?limit={ROWS}{self._least('&', ladder)}")
        players = self._known.players.get(ladder) or [
            row["player"] for row in (board or {}).get("rows", ())
        ]
        for kind in ("", "/history", "") if players else ():
            if self._stop.wait(PACE_S):
                return
            player = quote(self._some(players, 1)[0], safe="")
            least = "" if kind else self._least("?", ladder)
            self._get(one, name, f"{at}/players/{player}{kind}{least}")
        if players and not self._stop.wait(PACE_S):
            some = self._some(players, LOOKED_UP)
            self._get(one, name, f"{at}/players:lookup{self._least('?', ladder)}", some)

    def _some(self, players: list[str], count: int) -> list[str]:
        """Different players, half of the times among a few."""
        among = players[:OFTEN] if self._chance.random() < 0.5 else players
        return self._chance.sample(among, min(count, len(among)))

    def _least(self, sign: str, ladder: str) -> str:
        """The query for a `min_offset`: of a round that may be unrated, of a rated one, or none."""
        known = self._chance.choice(({}, self._known.rated, self._known.reported))
        return f"{sign}min_offset={known[ladder]}&wait={WAIT_S}" if ladder in known else ""

    def _get(
        self, one: http.client.HTTPConnection, name: str, path: str, lookup: list[str] | None = None
    ) -> Any:
        """The body of an answer of 200; None of another one. `lookup`: the players of a lookup."""
        began_s = time.time()
        body = None if lookup is None else msgspec.json.encode({"players": lookup})
        one.request("GET" if lookup is None else "POST", path, body, self._headers())
        answer = one.getresponse()
        text = answer.read()
        found = msgspec.json.decode(text)
        self._write(
            Answered(
                c=name, path=path, status=answer.status, body=msgspec.Raw(text),
                ask=lookup or [], began=began_s, at=time.time(),
            )
        )  # fmt: skip
        return found if answer.status == 200 else None

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._given.token}"} if self._given.token else {}

    def stream(self) -> None:
        """Follow each ladder from its first change on."""
        followed: dict[str, threading.Thread] = {}
        while not self._stop.wait(AGAIN_S):
            try:
                with closing(http.client.HTTPConnection(self._address, timeout=ANSWER_S)) as one:
                    one.request("GET", "/v1/ladders", headers=self._headers())
                    answer = one.getresponse()
                    body = answer.read()
                listed = msgspec.json.decode(body)["ladders"] if answer.status == 200 else []
            except BROKEN:
                continue
            for ladder in [*self._given.follow, *listed]:
                if ladder not in followed:
                    name = f"{self._name}-stream-{ladder}"
                    followed[ladder] = threading.Thread(
                        target=self._follow, args=(ladder, name), daemon=True
                    )
                    followed[ladder].start()
        for each in followed.values():
            each.join(2.0 * ANSWER_S)

    def _follow(self, ladder: str, name: str) -> None:
        """Follow one ladder, and resume the stream whenever it breaks off."""
        last, whole = "0", False
        path = f"/v1/ladders/{quote(ladder, safe='')}/changes"
        deadline_s = float("inf")
        while not whole and time.monotonic() < deadline_s:
            stopping = self._stop.is_set()
            if stopping:  # resume it once more: the missing events come before a lone id
                deadline_s = min(deadline_s, time.monotonic() + ANSWER_S)
            try:
                with closing(http.client.HTTPConnection(self._address, timeout=2.0)) as connection:
                    headers = self._headers() | {"Last-Event-ID": last}
                    connection.request("GET", path, headers=headers)
                    answer = connection.getresponse()
                    if answer.status == 200:
                        last, whole = self._events(answer, ladder, name, last, stopping)
            except (OSError, http.client.HTTPException):
                pass
            self._stop.wait(AGAIN_S)

    def _events(
        self, answer: http.client.HTTPResponse, ladder: str, name: str, last: str, once: bool
    ) -> tuple[str, bool]:
        """Take events to the end, or (`once`) until none is missing. Returns last id, and if so."""
        found: dict[str, str] = {}
        try:
            while line := answer.readline():
                text = line.decode().rstrip("\n")
                if text:
                    field, _, value = text.partition(": ")
                    found[field] = value
                    continue
                if "event" in found:
                    self._write(
                        Streamed(
                            c=name, ladder=ladder, event=found["event"], data=found["data"],
                            id=found.get("id", ""), at=time.time(),
                        )
                    )  # fmt: skip
                elif once and "id" in found:
                    return found["id"], True
                last = found.get("id", last)
                found = {}
        except (OSError, http.client.HTTPException):
            pass
        return last, False
