"""What `run`, `submit` and `verify` do, once `app` has understood their words."""

import faulthandler
import signal
import sys
import time
from pathlib import Path

from msgspec import structs

from stream_rater.adapters.kafka.ladder_events import disagreement, noted_ladders
from stream_rater.adapters.kafka.producers import Submitter
from stream_rater.adapters.kafka.reader import read_all
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.cli.corrections import checked, refused_now
from stream_rater.cli.terminal import SHOWN_MISTAKES, Mistakes, Order, records_in, rejections
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import service_ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.events import shown
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from stream_rater.operations.live_log import ends_of
from stream_rater.operations.verify import Verdict, compare
from stream_rater.rounds.corrections import kind_of, names_in, round_in
from stream_rater.rounds.decoder import RoundDecoder
from stream_rater.rounds.validation import Invalid
from stream_rater.runtime import http, malloc, selfcheck
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import counted, track
from stream_rater.runtime.service import Service

LAST_S = 9.5
"""After a signal to stop, the process has so long, whatever happens."""


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
        raise BadConfiguration(
            f"http {settings.http!r}: {error}: set {PREFIX}HTTP to another host:port; port 0 picks "
            "a free one"
        ) from None
    service.log.info("http", port=server.port)
    return server


# --- submit -------------------------------------------------------------------------------------


def submit(path: Path, settings: Settings, per_second: float | None) -> None:
    """Send a file's valid rounds and corrections to Kafka."""
    ladders = service_ladders(settings)
    decoder, mistakes, order = RoundDecoder(ladders), Mistakes(path), Order()
    with named_failures():
        admin = Admin(settings)
        if admin.topics.rounds not in admin.partitions():
            admin.create_topics()
        submitter = Submitter(settings, admin.topics.rounds)
        end_of = ends_of(admin)
        sent, corrections, began_s = 0, 0, time.monotonic()
        for record in records_in(path):
            value = (record.value or b"").strip()
            now = structs.replace(record, value=value, received_s=time.time())
            kind = kind_of(record)
            try:
                if kind:
                    correction = checked(now, ladders)
                    if (refused := refused_now(correction, ladders, end_of)) is not None:
                        raise refused
                    mistakes.valid(correction)
                    about = round_in(correction) or ", ".join(names_in(correction))
                    submitter.correct(correction.ladder, kind, value, about)
                    corrections += 1
                else:
                    standings = mistakes.valid(decoder.read(now))
                    order.add(standings.batch)
                    submitter.submit(
                        standings.ladder, standings.round_id, standings.completed_at, value
                    )
            except Invalid as invalid:
                mistakes.add(record.offset, invalid)
                continue
            sent += 1
            if per_second:
                time.sleep(max(0.0, began_s + sent / per_second - time.monotonic()))
        submitter.flush()
    if submitter.failures:
        first = shown(submitter.failures[0])
        raise Failed(f"{counted(len(submitter.failures), 'record')} not sent, first {first}")
    told = f" and {counted(corrections, 'correction')}" if corrections else ""
    print(f"{counted(sent - corrections, 'round')}{told} sent", file=sys.stderr)
    order.conclude(path)
    mistakes.conclude()


# --- verify -------------------------------------------------------------------------------------


def verify(settings: Settings, wait_s: float) -> None:
    """Compare the store with the log's sequential replay; Failed where they differ.

    Raises BadConfiguration if the ladders file or the duplicate window is not that of the workers.
    """
    ladders = service_ladders(settings)
    with named_failures():
        admin, store = Admin(settings), RedisStore(settings)
        rounds, shards = admin.partitions_of(admin.topics.rounds, admin.topics.parts)
        begun_by = store.layout.begun_by(KERNEL_VERSION)  # fails at once where Redis is down
        store.layout.check_window(settings.duplicate_window)
        if why := disagreement(settings, ladders, noted_ladders(settings, admin)):
            raise BadConfiguration(f"{why}: nothing was compared")
        _wait_until_caught_up(admin, rounds, shards, wait_s)
        verdict = compare(
            lambda: track(read_all(settings, admin.topics.rounds, rounds), "rounds"),
            ladders,
            settings.duplicate_window,
            rounds,
            shards,
            store.read,
        )
        surplus = store.count_beliefs() - verdict.beliefs + len(verdict.missing)
    _report(verdict, surplus, begun_by)


def _wait_until_caught_up(admin: Admin, rounds: int, shards: int, wait_s: float) -> None:
    deadline_s = time.monotonic() + wait_s
    topics, told = admin.topics, False
    while True:
        to_estimate = admin.behind(ESTIMATORS, topics.rounds, rounds)
        to_apply = admin.behind(UPDATERS, topics.parts, shards)
        behind = to_estimate + to_apply
        if behind == 0:
            return
        for role, group, left in (
            ("estimator", ESTIMATORS, to_estimate), ("updater", UPDATERS, to_apply),
        ):  # fmt: skip
            if left and not admin.members(group):
                raise Failed(
                    f"{counted(left, 'record')} of an {role}'s work left, and no worker with this "
                    "role runs: start one (`stream-rater run`): nothing was compared"
                )
        if time.monotonic() > deadline_s:
            raise Failed(
                f"the workers are {counted(behind, 'record')} behind: nothing was compared"
            )
        if not told:
            print(
                f"waiting for the workers, which are {counted(behind, 'record')} behind, "
                f"for {wait_s:g} s at most",
                file=sys.stderr,
            )
            told = True
        time.sleep(0.2)


def _report(verdict: Verdict, surplus: int, begun_by: int) -> None:
    for name, players in (("missing", verdict.missing), ("different", verdict.differing)):
        for ladder, player in players[:SHOWN_MISTAKES]:
            print(f"{name}: ladder {ladder!r}, player {player!r}", file=sys.stderr)
    done = (
        f"{verdict.rounds} rounds replayed, {rejections(verdict.rejected)}, "
        f"{verdict.beliefs} beliefs compared"
    )
    if not verdict.equal or surplus:
        raise Failed(
            f"{done}: {len(verdict.missing)} missing, {len(verdict.differing)} different, "
            f"{surplus} that the log does not explain{_other_kernels(begun_by)}"
        )
    print(f"{done}: all equal, bit for bit")


def _other_kernels(begun_by: int) -> str:
    if begun_by == KERNEL_VERSION:
        return ""
    return (
        f" (ratings go back to kernel version {begun_by}, this release has {KERNEL_VERSION}: "
        "`stream-rater rebuild --replace` computes all of them anew)"
    )
