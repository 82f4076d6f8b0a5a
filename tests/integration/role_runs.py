"""Runs roles and commands in threads of the test. Each returns what a user would read at its end. A
worker is a Service; `serve` is its index's follower, or an adapter that answers one kind of
request."""

import asyncio
import gc
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TextIO
from unittest.mock import patch

from stream_rater.adapters.kafka.round_log import KafkaLog, KafkaRoundLog
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.cli.app import main
from stream_rater.config.errors import BadConfiguration, Failed, named_failures
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import ANY_LADDER
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from stream_rater.contract.record import NewRecord, NotAppended
from stream_rater.index.folder import Hold
from stream_rater.index.follower import Follower
from stream_rater.index.log import Watcher
from stream_rater.places import opened
from stream_rater.places.live_beliefs import LiveBeliefs
from stream_rater.places.port import Place
from stream_rater.runtime.service import Service
from tests.builders.lines import a_message, a_round
from tests.integration.processes import file_of

LOOKS = 25  # So many polls for rejections show whether Kafka allows reading.
LOOK_S = 0.3  # Between two checks if a worker has finished; one that lacks a right fails.


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class ByThread(io.TextIOBase):
    """A standard stream that can keep what one thread writes apart."""

    encoding, errors = "utf-8", "strict"

    def __init__(self, usual: TextIO) -> None:
        self._usual, self._own = usual, threading.local()

    def write(self, text: str) -> int:
        """Append to this thread's own text if there is one, else write to the stream."""
        return self._target().write(text)

    def flush(self) -> None:
        self._target().flush()

    def _target(self) -> TextIO:
        return getattr(self._own, "text", self._usual)

    @contextmanager
    def kept(self) -> Iterator[io.StringIO]:
        """Keep what this thread writes in the block."""
        self._own.text = io.StringIO()
        try:
            yield self._own.text
        finally:
            del self._own.text


@contextmanager
def streams_by_thread() -> Iterator[None]:
    """Let commands run in several threads at once, without settings from the environment."""
    usual = sys.stdout, sys.stderr
    given = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith(PREFIX)}
    sys.stdout, sys.stderr = ByThread(sys.stdout), ByThread(sys.stderr)
    gc.collect()
    gc.freeze()  # collections then only look at objects made after this
    try:
        with patch.object(gc, "freeze"), patch.object(gc, "set_threshold"):
            yield
    finally:
        gc.unfreeze()
        sys.stdout, sys.stderr = usual
        os.environ |= given


def run_command(words: list[str], settings: Settings, folder: Path) -> Ended:
    """Run a command as the program does. Its settings are in a file."""
    file = file_of(settings, folder)
    assert isinstance(sys.stdout, ByThread) and isinstance(sys.stderr, ByThread)
    with sys.stdout.kept() as out, sys.stderr.kept() as err:
        try:
            main.main([*words, "--settings", file], prog_name="stream-rater")
        except SystemExit as end:
            return Ended(int(end.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("click ends a command by SystemExit")


def in_one_line(action: Callable[[], None]) -> Ended:
    """How a command ends that performs this action."""
    try:
        with named_failures():
            action()
    except BadConfiguration as error:
        return Ended(2, "", f"stream-rater: {error}\n")
    except Failed as error:
        return Ended(1, "", f"stream-rater: {error}\n")
    return Ended(0, "", "")


# --- workers -------------------------------------------------------------------------------------


def left(admin: Admin, roles: frozenset[str]) -> int:
    """The number of records that the workers of these roles have not finished."""
    topics, partitions = admin.topics, admin.partitions()
    of_role = {"estimator": (ESTIMATORS, topics.rounds), "updater": (UPDATERS, topics.parts)}
    count = 0
    for group, topic in (of_role[role] for role in sorted(roles)):
        ends = dict(enumerate(admin.ends(topic, partitions[topic])))
        count += sum(map(len, admin.left(group, topic, ends).values()))
    return count


def run_worker(opened: Settings, roles: frozenset[str], settings: Settings) -> Ended:
    """Run a worker until it has rated all, as `opened` shows it, or fails."""

    def work() -> None:
        service, ended = Service(settings, ladders_of_settings(settings), roles), threading.Event()

        def stop_when_done() -> None:
            admin = Admin(opened)
            while not ended.wait(LOOK_S):
                if left(admin, roles) == 0 and not service.unready():
                    service.stop()

        thread = threading.Thread(target=stop_when_done)
        thread.start()
        try:
            service.run()
        finally:
            ended.set()
            thread.join()

    return in_one_line(work)


# --- serve ---------------------------------------------------------------------------------------


def follow(settings: Settings) -> Ended:
    """Follow `rating-changed` until the index is complete."""

    class UntilComplete(Watcher):
        """Stops the follower once the index is complete."""

        def polled(self, caught_up: bool, lag: int, _: float) -> None:
            if caught_up:
                follower.stop()

    with TemporaryDirectory(prefix="stream-rater-") as name, closing(Hold(Path(name))):
        follower = Follower(Path(name), partial(KafkaLog, settings), 20, UntilComplete())
        return in_one_line(follower.run)


def read(reads: Callable[[Place], object], settings: Settings) -> Ended:
    """Do what a request does that reads from the place itself."""

    def act() -> None:
        with opened(settings) as place:
            reads(place)

    return in_one_line(act)


def take_rounds(settings: Settings) -> Ended:
    """Do what a posted round causes: append it, and follow progress and rejections."""

    def work() -> None:
        asyncio.run(_append(settings))
        with opened(settings) as place:
            place.progress()
            for _ in islice(place.follow_rejections([]), LOOKS):
                pass

    return in_one_line(work)


async def _append(settings: Settings) -> None:
    log = KafkaRoundLog(settings)
    log.start(asyncio.get_running_loop())
    try:
        while True:
            try:
                assert log.partitions
                break
            except LogTrouble as trouble:
                if "not connected yet" not in str(trouble):
                    raise
            await asyncio.sleep(0.02)
        message = a_message(a_round(9, ladder="eu", completed_at="2020-05-01T20:15:05Z"))
        record = NewRecord(0, message.key or b"", message.value or b"", ())
        (found,) = await log.append([record])
        if isinstance(found, NotAppended):
            raise LogTrouble(found.detail)
    finally:
        await asyncio.to_thread(log.close)


SERVING: dict[str, Callable[[Settings], Ended]] = {
    "serve": follow,
    "serve with beliefs": partial(read, lambda at: LiveBeliefs(ANY_LADDER, at).of("eu", ["ann"])),
    "serve with min_offset": partial(read, lambda at: (at.ends(), at.progress())),
    "serve with writing": take_rounds,
}
