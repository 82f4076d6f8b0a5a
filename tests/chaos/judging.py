"""Lets the judge, which shares no code with the service, judge a row of chaos. One recorder reads
from the first record on; another one reads all at the end, and must have seen the same."""

import http.client
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import msgspec

from local.processes import start_guard
from local.tools import ROOT
from stream_rater.config.settings import Settings
from stream_rater.contract.record import RecordPlace
from tests.chaos.crew import Violation
from tests.judge.judge import judged
from tests.judge.observations import Answered, End, Findings, Line, Run, Sent, Writer
from tests.waits import STILL_S, any_of, cpu_of, size_of, wait_until

MOST_LINES = 5  # the violations that are shown
ANSWERS = ("states of players in answers", "states with min_offset", "histories", "streamed events")
"""The counts of the judge that are not 0 if a recorder has asked an API."""


class Recording:
    def __init__(self, file: Path, words: Sequence[str]) -> None:
        self.file = file
        self._log = file.with_suffix(".log")
        self._guard = start_guard()  # ends the recorder even if this process is killed
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.judge.recorder", str(file), *words],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{self._process.pid}\n".encode())
        self._guard.stdin.flush()

    def finish(self) -> Path:
        """Let it read to the end. Returns its file. Raises Violation if it failed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        wait_until(
            lambda: self._process.poll() is not None, "the recorder has read to the end",
            moves=any_of(size_of(self.file), cpu_of(self._process.pid)),
        )  # fmt: skip
        if self._process.returncode:
            raise Violation(f"the recorder: {self._log.read_text()[-2000:]}")
        return self.file

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()


def recording(file: Path, *words: str) -> closing[Recording]:
    """A recorder that ends with the block."""
    return closing(Recording(file, words))


def words_of(settings: Settings, redisplayed: Mapping[str, int] = {}) -> list[str]:
    """A recorder's arguments. `redisplayed`: offsets where ladders get other display parameters."""
    return [
        "--kafka", settings.kafka, "--prefix", settings.topic_prefix,
        "--window", str(settings.duplicate_window),
        "--threshold", str(settings.correction_threshold),
        "--rated", msgspec.json.encode(_rated(settings)).decode(),
        "--redisplayed", msgspec.json.encode(redisplayed).decode(),
    ]  # fmt: skip


def _rated(settings: Settings) -> dict[str, Any]:
    """The tables `rating` of the ladders file, by ladder; without a file, the default of all."""
    if not settings.ladders:
        return {"*": {"system": "elo-mmr", "weight_limit": 0.2, "sigma_limit": 80}}
    ladders = tomllib.loads(Path(settings.ladders).read_text())["ladders"]
    return {
        name: {} if "changes" in each else each.get("rating", {}) for name, each in ladders.items()
    }


def asking(addresses: Sequence[str]) -> list[str]:
    return [word for each in addresses for word in ("--http", each)]


def judge_twice(live: Recording, settings: Settings) -> Findings:
    """Judge what a recorder saw during the run, and what another one sees once all is rated."""
    first = live.finish()
    again = first.with_name(f"again-{first.name}")
    with recording(again, "--name", "again", *words_of(settings)) as second:
        second.finish()
    return judged(first, again)


class Posts:
    """Writes down what clients post, from several threads, and what they are answered."""

    def __init__(self, file: Path) -> None:
        self._file, self._writer, self._lock = file, Writer(file), threading.Lock()
        self._write(Run(reader="clients"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write(End())
        self._writer.close()

    def answered(
        self, rounds: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]
    ) -> None:
        """Rounds that were sent, and the answer about each, if one came."""
        for each, answer in zip(rounds, answers or [{"status": 0}] * len(rounds), strict=True):
            raw = msgspec.Raw(msgspec.json.encode(each))
            known = answer.get("offset") is not None
            place = {"p": answer["partition"], "o": answer["offset"]} if known else {}
            self._write(
                Sent(c="", ladder=each["ladder"], round=raw, status=answer["status"], **place)
            )

    def ask(self, address: str, acknowledged: Mapping[tuple[str, str], RecordPlace]) -> None:
        """Ask for the state of each acknowledged round, until it is not pending."""
        with closing(http.client.HTTPConnection(address, timeout=STILL_S)) as connection:
            for (ladder, round_id), place in acknowledged.items():
                at = f"/v1/ladders/{quote(ladder, safe='')}/rounds/{quote(round_id, safe='')}"
                path = f"{at}?wait=30&partition={place.partition}&offset={place.offset}"
                connection.request("GET", path)
                answer = connection.getresponse()
                body = msgspec.Raw(answer.read())
                self._write(Answered(c="clients", path=path, status=answer.status, body=body))

    def _write(self, line: Line) -> None:
        with self._lock:
            self._writer.write(line)


def check(name: str, found: Findings, *, asked: bool = False) -> int:
    """How many changes were judged. Raises Violation if a promise was broken, or none judged."""
    if not found.clean:
        lines = "\n".join(found.report(MOST_LINES))
        raise Violation(f"{name}: the judge says:\n{lines}")
    if missing := [kind for kind in ANSWERS if asked and not found.checked[kind]]:
        raise Violation(f"{name}: the judge had none of these: {', '.join(missing)}")
    return found.checked["changes"]
