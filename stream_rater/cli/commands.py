"""What the commands do, once their words are understood (`cli`)."""

import base64
import faulthandler
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import structs
from rich.console import Console

from stream_rater.adapters.reader import Submitter, follow, read_all
from stream_rater.adapters.redis import RedisStore
from stream_rater.adapters.topics import Admin
from stream_rater.cli.failures import named_failures
from stream_rater.cli.terminal import SHOWN_MISTAKES, Failed, Mistakes, track
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config import BadConfiguration, Ladders, Settings, service_ladders
from stream_rater.contract.events import RatingChanged, rating_changed_from_json, shown
from stream_rater.lab.lines import read_lines
from stream_rater.lab.offline import Replay, batches_of, records_of
from stream_rater.lab.replay import Pool
from stream_rater.lab.verify import Verdict, compare
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime import embedded, http, malloc, selfcheck
from stream_rater.runtime.service import ESTIMATORS, UPDATERS, Service

LAST_S = 9.5
"""After a signal to stop, the process has so long, whatever happens."""

_to_json = msgspec.json.Encoder().encode


# --- rate ---------------------------------------------------------------------------------------


def rate(path: Path, ladders: Ladders, out: Path | None, *, records: bool) -> None:
    """Rate a file's rounds offline and write the final ratings."""
    replay, mistakes = Replay(ladders, Settings().duplicate_window), Mistakes(path)
    with named_failures():
        for some in batches_of(track(records_of(read_lines(path)), "rounds")):
            for record, refusal in zip(some, replay.feed(some), strict=True):
                if refusal is not None:
                    mistakes.add(record.offset, refusal)
        with _opened(out) as file:
            _write_ratings(replay, file, records=records)
    mistakes.conclude()


@contextmanager
def _opened(out: Path | None) -> Iterator[IO[bytes]]:
    if out is None:
        yield sys.stdout.buffer
        return
    with out.open("wb") as file:
        yield file


class RatingLine(msgspec.Struct, omit_defaults=True):
    """One player's final rating, as `rate` writes it."""

    ladder: str
    player: str
    mu: float
    sigma: float
    rating: float
    rounds: int
    record: str | None = None
    """The belief's bytes, base64."""


def _rating_line(ladder: str, pool: Pool, player: str, header: Any, *, records: bool) -> RatingLine:
    mu, sigma = float(header["mu"]), float(header["sigma"])
    record = base64.b64encode(pool.belief_bytes(player)).decode() if records else None
    rating = float(pool.rule.rating(mu, sigma))
    return RatingLine(ladder, player, mu, sigma, rating, int(header["rounds"]), record)


def _write_ratings(replay: Replay, file: IO[bytes], *, records: bool) -> None:
    for ladder, pool in sorted(replay.pools.items()):
        lines = [
            _rating_line(ladder, pool, player, header, records=records) for player, header in pool
        ]
        lines.sort(key=lambda line: (-line.rating, line.player))
        file.writelines(_to_json(line) + b"\n" for line in lines)


# --- run ----------------------------------------------------------------------------------------


def run(settings: Settings, roles: frozenset[str]) -> None:
    """The service, until SIGTERM or SIGINT."""
    ladders = service_ladders(settings)
    with named_failures():
        selfcheck.check()  # before joining a group: the first round finds compiled code
        service = Service(settings, ladders, roles)
        malloc.keep()
        server = _serve(settings, service)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: _stop(service))
        try:
            service.run()
        finally:
            if server is not None:
                server.close()


def _stop(service: Service) -> None:
    # Whatever hangs, even a client library that holds Python's lock, the process ends.
    faulthandler.dump_traceback_later(LAST_S, exit=True)
    service.stop()


def _serve(settings: Settings, service: Service) -> http.Server | None:
    if not settings.http:
        return None
    app = http.application(service.metrics.registry, service.unhealthy, service.unready)
    try:
        server = http.Server(settings.http, app)
    except (OSError, ValueError) as error:
        raise BadConfiguration(f"http {settings.http!r}: {error}") from None
    service.log.info("http", port=server.port)
    return server


# --- submit -------------------------------------------------------------------------------------


def submit(path: Path, settings: Settings, per_second: float | None) -> None:
    """Send a file's valid rounds to Kafka."""
    decoder, mistakes = RoundDecoder(service_ladders(settings)), Mistakes(path)
    with named_failures():
        admin = Admin(settings)
        if admin.topics.rounds not in admin.partitions():
            admin.create_topics()
        submitter = Submitter(settings, admin.topics.rounds)
        total = sum(1 for line in read_lines(path) if line.strip())
        sent, began_s = 0, time.monotonic()
        for record in track(records_of(read_lines(path)), "rounds", total):
            value = (record.value or b"").strip()
            try:
                standings = decoder.read(
                    structs.replace(record, value=value, received_s=time.time())
                )
            except Invalid as invalid:
                mistakes.add(record.offset, invalid)
                continue
            submitter.submit(standings.ladder, standings.round_id, standings.completed_at, value)
            sent += 1
            if per_second:
                time.sleep(max(0.0, began_s + sent / per_second - time.monotonic()))
        submitter.flush()
    if submitter.failures:
        first = shown(submitter.failures[0])
        raise Failed(f"{len(submitter.failures)} rounds not sent, first {first}")
    print(f"{sent} rounds sent", file=sys.stderr)
    mistakes.conclude()


# --- watch --------------------------------------------------------------------------------------


def watch(
    settings: Settings, *, ladder: str | None, player: str | None, from_start: bool,
    as_json: bool, count: int | None,
) -> None:  # fmt: skip
    """Print rating-changed events as they come."""
    with named_failures():
        admin = Admin(settings)
        topic = admin.topics.changed
        (partitions,) = admin.partitions_of(topic)
        shown = 0
        for message in follow(settings, topic, partitions, from_start=from_start):
            if message is None:
                continue
            value = message.value() or b""
            event = rating_changed_from_json(value)
            if (ladder and event.ladder != ladder) or (player and event.player != player):
                continue
            print(value.decode() if as_json else _told(event), flush=True)
            shown += 1
            if count is not None and shown >= count:
                return


def _told(event: RatingChanged) -> str:
    return (
        f"{event.completed_at}  {shown(event.ladder):<16} {shown(event.player):<24} "
        f"{outcome_of(event)}"
    )


def outcome_of(event: RatingChanged) -> str:
    """What a round did to a player, as a line's end."""
    rank = "did not finish" if event.rank is None else f"rank {event.rank}"
    change = event.rating - event.previous_rating
    return (
        f"{rank:<14} {event.previous_rating:7.1f} -> {event.rating:7.1f} ({change:+.1f})  "
        f"{shown(event.round_id)}"
    )


# --- verify -------------------------------------------------------------------------------------


def verify(settings: Settings, wait_s: float) -> None:
    """Compare the store with the log's sequential replay; Failed where they differ."""
    with named_failures():
        admin = Admin(settings)
        rounds, shards = admin.partitions_of(admin.topics.rounds, admin.topics.parts)
        _wait_until_caught_up(admin, rounds, shards, wait_s)
        store = RedisStore(settings)
        records = read_all(settings, admin.topics.rounds, rounds)
        verdict = compare(
            track(records, "rounds"),
            service_ladders(settings),
            settings.duplicate_window,
            rounds,
            shards,
            store.read,
        )
        surplus = store.count_beliefs() - verdict.beliefs + len(verdict.missing)
        begun_by = store.layout.begun_by(KERNEL_VERSION)
    _report(verdict, surplus, begun_by)


def _wait_until_caught_up(admin: Admin, rounds: int, shards: int, wait_s: float) -> None:
    deadline_s = time.monotonic() + wait_s
    topics = admin.topics
    while True:
        behind = admin.behind(ESTIMATORS, topics.rounds, rounds)
        behind += admin.behind(UPDATERS, topics.parts, shards)
        if behind == 0:
            return
        if time.monotonic() > deadline_s:
            raise Failed(f"the workers are {behind} records behind: nothing was compared")
        time.sleep(0.2)


def _report(verdict: Verdict, surplus: int, begun_by: int) -> None:
    for name, players in (("missing", verdict.missing), ("different", verdict.differing)):
        for ladder, player in players[:SHOWN_MISTAKES]:
            print(f"{name}: ladder {ladder!r}, player {player!r}", file=sys.stderr)
    counted = (
        f"{verdict.rounds} rounds replayed, {verdict.rejected} rejected, "
        f"{verdict.beliefs} beliefs compared"
    )
    if not verdict.equal or surplus:
        raise Failed(
            f"{counted}: {len(verdict.missing)} missing, {len(verdict.differing)} different, "
            f"{surplus} that the log does not explain{_other_kernels(begun_by)}"
        )
    print(f"{counted}: all equal, bit for bit")


def _other_kernels(begun_by: int) -> str:
    if begun_by == KERNEL_VERSION:
        return ""
    return (
        f" (ratings go back to kernel version {begun_by}, this release has {KERNEL_VERSION}: "
        "`stream-rater rebuild --replace` computes all of them anew)"
    )


# --- demo ---------------------------------------------------------------------------------------


def embedded_demo(rounds: int) -> None:
    """A season on the in-memory adapters."""
    embedded.play(rounds, Console())
