"""`stream-rater run`: the state machines on real servers, a thread for each role."""

import faulthandler
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from stream_rater.adapters.driver import Driver, Stopping
from stream_rater.adapters.kafka.consumer import Fenced, Input
from stream_rater.adapters.kafka.ladder_events import LadderEvents
from stream_rater.adapters.kafka.topics import REQUEST_TIMEOUT_S, Admin, Topics
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import BadConfiguration, named_failures
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders, say_cautions
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract import errors
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.ports import Effect, Poll, Step
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.runtime import http, log, metrics, selfcheck, startup
from stream_rater.runtime.observer import MOST_FOLLOWED, Lag, ServiceObserver, spans_of

STALE_S = 30.0  # A role whose last poll is longer ago than this is not healthy.
ASK_EVERY_S = 2.0  # The interval at which Kafka and Redis are asked, whatever the roles do.
HUNG_S = 60.0
"""A role whose last poll is longer ago than this hangs in a call that does not return: no call
waits this long on purpose. The process then ends."""
SLICE_S = 0.2
SWITCH_S = 0.0003
"""The interval after which a role's thread lets the other one use the interpreter. With Python's
default of 5 ms, each of the many calls of a wave may wait 5 ms. At 4,400 updates a second, this
value gave a p50 of 82 ms, and the default 105 ms."""
STOP_S = 8.0  # A role asked to stop must finish in this time; else the process ends, as in a crash.
STOP_TIMEOUT_S = 9.5  # The longest time to the process's end after a signal, or a role's failure.
QUIET_S = 10.0  # The time without trouble after which a role counts as working again in any case.


def layout_of(settings: Settings, admin: Admin, partitions: Mapping[str, int]) -> dict[str, str]:
    """The layout of a store: the settings and the topic that it depends on."""
    rounds = admin.topics.rounds
    return {
        "shards": str(partitions[admin.topics.parts]), "buckets": str(settings.buckets),
        "partitions": str(partitions[rounds]), "topic": admin.topic_id(rounds),
        "duplicate_window": str(settings.duplicate_window),
    }  # fmt: skip


def other_counts(
    settings: Settings, topics: Topics, partitions: Mapping[str, int]
) -> Iterator[str]:
    """Yield a warning for each count that is set and differs from the topic's, which is used."""
    for setting, topic in (("partitions", topics.rounds), ("shards", topics.parts)):
        configured, actual = getattr(settings, setting), partitions[topic]
        if configured not in (actual, getattr(Settings(), setting)):
            yield (
                f"{PREFIX}{setting.upper()} is {configured}, but {topic} has {actual} partitions: "
                f"{actual} are used; the setting counts only where the service creates the topic"
            )


def keep_asking(name: str, ask: Callable[[], object], up: Any, stop: threading.Event) -> None:
    """Ask a server at intervals. `up` says whether it answers, and the log when that changes."""
    failure, since_s = "", 0.0
    while not stop.is_set():
        before, failure = failure, ""
        try:
            ask()
        except Exception as error:
            failure = str(error) or repr(error)
        up.set(not failure)
        if bool(failure) != bool(before):
            event = f"{name} {'does not answer' if failure else 'answers again'}"
            before_s, since_s = since_s, time.monotonic()
            detail = {"reason": failure} if failure else {"after_s": round(since_s - before_s, 3)}
            log.logger("service").warning(event, **detail)
        stop.wait(ASK_EVERY_S)


class Recovery:
    """Watches a role's effects, and reports once when it works again and how long it did not. It
    works again once an effect of the kind that failed last has succeeded, and after it a poll that
    reads. A poll alone proves nothing: Kafka answers while Redis is down."""

    def __init__(self, clock: Callable[[], float], report: Callable[[float], None]) -> None:
        self._clock, self._report = clock, report
        self._since_s: float | None = None
        self._last_s = 0.0
        self._failing: type | None = None

    def failed(self, effect: Effect[Any]) -> None:
        """Record that this effect failed."""
        self._last_s = self._clock()
        if self._since_s is None:
            self._since_s = self._last_s
        self._failing = type(effect)

    def succeeded(self, effect: Effect[Any]) -> None:
        """Record that this effect succeeded."""
        if self._since_s is None:
            return
        if type(effect) is self._failing:
            self._failing = None
        reads = isinstance(effect, Poll) and not effect.no_fetch
        now_s = self._clock()
        if reads and (self._failing is None or now_s - self._last_s >= QUIET_S):
            self._report(now_s - self._since_s)
            self._since_s = self._failing = None


@dataclass
class Role:
    """One running state machine."""

    name: str
    driver: Driver
    observer: ServiceObserver
    machine: Step[Any]
    failure: BaseException | None = None
    trouble: str = ""  # The reason why it started over and does not read yet; empty if it reads.
    last_polled_s: float = 0.0
    stalled_s: float = 0.0
    seen: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    """The committed offset of each partition, and the end that it had when this was first seen."""
    waiting: dict[int, deque[tuple[int, float]]] = field(default_factory=dict)
    """By partition, ends that are not committed yet, each with the time when it was first seen."""

    def stalled(self, slice_s: float) -> float:
        """The seconds since its last poll, without those for which the whole process was frozen.
        The caller must call this every `slice_s` seconds."""
        polled_s = self.driver.polled_s
        self.stalled_s = self.stalled_s + slice_s if polled_s == self.last_polled_s else 0.0
        self.last_polled_s = polled_s
        return self.stalled_s

    def lag(self) -> int:
        """The largest number of unfinished records of any partition."""
        ends, finished = self.driver.input.ends(), self.observer.finished
        return max((max(0, end - finished.get(p, end)) for p, end in ends.items()), default=0)

    def unattended(self, committed: Mapping[int, int | None]) -> int:
        """The number of partitions of other workers in which records have come since the committed
        offset moved."""
        mine, count = self.driver.input.ends(), 0
        for p, end in self.driver.input.log_ends.items():
            if p not in self.seen or self.seen[p][0] != committed[p]:
                self.seen[p] = committed[p], end
            count += p not in mine and end > self.seen[p][1]
        return count

    def oldest_s(self, committed: Mapping[int, int | None], now_s: float) -> float:
        """For how many seconds the oldest record of any partition has been seen to wait. A single
        record does not count: it may be the marker of a producer's transaction."""
        oldest_s = now_s
        for p, end in self.driver.input.log_ends.items():
            seen, done = self.waiting.setdefault(p, deque()), committed[p] or 0
            while seen and (seen[0][0] <= done or end <= done + 1):
                seen.popleft()
            if end > done + 1:
                if len(seen) < MOST_FOLLOWED and (not seen or seen[-1][0] < end):
                    seen.append((end, now_s))
                oldest_s = min(oldest_s, seen[0][1])
        return now_s - oldest_s

    def drive(self, on_end: Callable[["Role"], None]) -> None:
        """Perform effects until the role must stop or fails. Then call `on_end`, and leave."""
        outcome, trouble = None, None
        recovery = Recovery(time.monotonic, self.observer.recovered)
        try:
            while True:
                effect: Effect[Any] = (
                    self.machine.send(outcome) if trouble is None else self.machine.throw(trouble)
                )
                outcome, trouble = None, None
                try:
                    outcome = self.driver.perform(effect)
                    recovery.succeeded(effect)
                    if isinstance(effect, Poll) and not effect.no_fetch:
                        self.trouble = ""
                except errors.Trouble as error:
                    recovery.failed(effect)
                    trouble = error
                    self.trouble = str(error)
        except Stopping:
            pass
        except BaseException as error:
            self.failure = error
            if isinstance(error, errors.Denied):
                self.observer.denied(error)
        finally:
            on_end(self)  # first, because the client library may hang while the role leaves
            try:
                self.driver.input.close()
            except Exception as error:
                self.failure = self.failure or error


class Service:
    """The roles of one process, with their metrics and probes."""

    def __init__(self, settings: Settings, ladders: Ladders, roles: frozenset[str]) -> None:
        self._settings, self._ladders = settings, ladders
        self._stop = threading.Event()
        self.on_stop: Callable[[], None] = lambda: None
        """Called when the roles are asked to finish, or when the process ends without them."""
        self.log = log.logger("service")
        if path := settings.ladders:
            digest = sha256(Path(path).read_bytes())
            self.log.info("ladders file", path=path, sha256=digest.hexdigest())
        self.metrics = metrics.Metrics()
        self._lag = Lag()
        self.metrics.registry.register(self._lag)
        admin = Admin(settings, request_timeout_s=REQUEST_TIMEOUT_S)
        admin.create_topics()
        partitions = admin.check_topics()
        for warning in (*admin.warnings, *other_counts(settings, admin.topics, partitions)):
            self.log.warning(warning)
        self._cache_bytes = (settings.cache_mb << 20) // len(roles)  # of each role
        self._prepare_store(admin, partitions, estimates="estimator" in roles)
        self._admin, self._partitions = admin, partitions
        self._report_environment()
        self._roles = [self._role(name) for name in sorted(roles)]
        self.metrics.ready.set_function(lambda: float(not self.unready()))

    def _prepare_store(self, admin: Admin, partitions: dict[str, int], *, estimates: bool) -> None:
        store = RedisStore(self._settings)
        for warning in store.prepare():
            self.log.warning(warning)
        self.log.info(store.functions)
        self._layout = layout_of(self._settings, admin, partitions)
        store.check_layout(self._layout)
        store.layout.begin(KERNEL_VERSION)
        if estimates:
            ladder_events, rounds = LadderEvents(self._settings, admin), admin.topics.rounds
            startup.check_ladders(
                self._ladders, ladder_events, lambda: admin.ends(rounds, partitions[rounds]),
                lambda: admin.committed(ESTIMATORS, rounds, partitions[rounds]),
            )  # fmt: skip
            ladder_events.close()
        store.close()

    def _report_environment(self) -> None:
        if slow := selfcheck.slow_processor():
            self.log.warning(slow)
        say_cautions(self._ladders, self.log.warning)
        release = metadata.version("stream-rater")
        self.metrics.info.info({"version": release, "kernel": str(KERNEL_VERSION)})
        settings = self._settings
        for server, use, path in (
            ("kafka", "client", settings.kafka_ssl_certificate),
            ("kafka", "authority", settings.kafka_ssl_ca),
            ("redis", "client", settings.redis_certificate),
            ("redis", "authority", settings.redis_ca),
        ):
            end_s = metrics.not_after(path) if path else None
            if end_s is not None:  # of the present file, which the clients read
                self.metrics.certificates.labels(server, use).set(end_s)

    def _role(self, name: str) -> Role:
        settings, topics = self._settings, self._admin.topics
        estimating = name == "estimator"
        topic, group = (topics.rounds, ESTIMATORS) if estimating else (topics.parts, UPDATERS)
        input_ = Input(settings, topic, group, self._stop, prefer_large_fetches=estimating)
        self.metrics.partitions.labels(name).set(self._partitions[topic])
        spans = spans_of(name, topic, settings.topic_prefix + group, input_.client_id)
        observer = ServiceObserver(self.metrics, name, log.logger(name), spans)
        input_.on_committed = observer.positions
        self._lag.add(topic, input_.ends, observer, corrections=estimating)
        store = RedisStore(settings)
        store.expected_layout = self._layout
        store.checkpoints.on_failure = observer.checkpoint_failed
        driver = Driver(
            settings, input_, self._admin, store, name, stop=self._stop,
            on_effect=lambda stage, s: self.metrics.seconds.labels(name, stage).observe(s),
        )  # fmt: skip
        driver.on_polled = observer.polled
        driver.on_encoding = lambda encoding: self.metrics.hashes.labels(encoding).inc()
        shards, cache_bytes = self._partitions[topics.parts], self._cache_bytes
        machine: Step[Any]
        if estimating:
            machine = Estimator(
                self._ladders, shards, self._partitions[topic], window=settings.duplicate_window,
                wave_players=settings.wave_players, rejects_per_second=settings.rejects_per_second,
                observer=observer, threshold=settings.correction_threshold,
                checkpoint_every=settings.checkpoint_every, cache_bytes=cache_bytes,
            ).run()  # fmt: skip
        else:
            machine = Updater(shards, observer=observer, cache_bytes=cache_bytes).run()
        return Role(name, driver, observer, machine)

    def run(self) -> None:
        """Run until `stop` is called or a role fails. Raises the exception of that role, or
        LogTrouble if a role does not finish in time, hangs, or cannot continue."""
        sys.setswitchinterval(SWITCH_S)
        threads = [
            threading.Thread(target=role.drive, args=(self._ended,), name=role.name, daemon=True)
            for role in self._roles
        ]
        kernel_of = RedisStore(self._settings).layout.begun_by
        for name, ask in (("kafka", self._ask_kafka), ("redis", lambda: kernel_of(0))):
            asked = name, ask, self.metrics.answers.labels(name), self._stop
            threading.Thread(target=keep_asking, args=asked, name=name, daemon=True).start()
        for thread in threads:
            thread.start()
        self.log.info("running", roles=[role.name for role in self._roles], pid=os.getpid())
        late = self._wait_for(threads)
        for role in self._roles:
            if isinstance(role.failure, Fenced | errors.Denied | errors.Unrecoverable):
                raise errors.LogTrouble(f"{role.name}: {role.failure}")
            if role.failure is not None:
                raise role.failure
        if late:
            raise errors.LogTrouble(f"{', '.join(late)} did not finish within {STOP_S:g} s")
        self.log.info("stopped")

    def _ask_kafka(self) -> None:
        """Ask for the ends of the topics, then for what the roles' groups have committed. Never ask
        who owns a partition: librdkafka may abort if the broker that it asks dies (its issue
        4605)."""
        names = self._admin.topics
        for topic in (names.rounds, names.parts, names.changed, names.rejected):
            ends = self._admin.all_ends(topic)  # partitions may be added
            self.metrics.log_ends.labels(topic).set(sum(ends))
            for each in (r.driver.input for r in self._roles if r.driver.input.topic == topic):
                each.log_ends = dict(enumerate(ends))
        for role in self._roles:
            input_ = role.driver.input
            committed = self._admin.committed(input_.group, input_.topic, len(input_.log_ends))
            self.metrics.unattended.labels(role.name).set(role.unattended(committed))
            oldest_s = role.oldest_s(committed, time.monotonic())
            self.metrics.oldest.labels(role.name).set(oldest_s)

    def _wait_for(self, threads: Sequence[threading.Thread]) -> list[str]:
        """Wait until all threads have ended. Waits in slices, so that signals are handled, and logs
        once that the process is ready. Returns the names of threads that are late. Raises
        LogTrouble if a role hangs."""
        is_announced = False
        while not self._stop.wait(SLICE_S):
            if hung := [role.name for role in self._roles if role.stalled(SLICE_S) > HUNG_S]:
                self.on_stop()  # the call may hold the interpreter's lock when the process ends
                raise errors.LogTrouble(f"{', '.join(hung)}: in a call that does not return")
            if not (is_announced or self.unready()):
                self.log.info("ready")
                is_announced = True
        deadline_s = time.monotonic() + STOP_S
        for thread in threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return [thread.name for thread in threads if thread.is_alive()]

    def stop(self) -> None:
        """Ask the roles to finish their present work, commit and leave their groups."""
        if not self._stop.is_set():
            self._stop.set()
            self.on_stop()

    def _ended(self, role: Role) -> None:
        """Log why a role failed, and ask the other one to finish."""
        if role.failure is not None:
            self.log.error("role failed", failed=role.name, reason=str(role.failure))
        self.stop()

    def unhealthy(self) -> list[str]:
        """The reasons why the process should be restarted: the roles that no longer poll."""
        now_s = time.monotonic()
        return [
            f"{role.name}: no poll for {now_s - role.driver.polled_s:.0f} s"
            for role in self._roles
            if now_s - role.driver.polled_s > STALE_S
        ]

    def unready(self) -> list[str]:
        """The reasons why the process does not promptly rate the records of its partitions."""
        reasons = self.unhealthy()
        most = self._settings.ready_lag or math.inf
        for role in self._roles:
            observer, input_, of_role = role.observer, role.driver.input, list[str]()
            if (lag := role.lag()) > most:
                of_role.append(f"{lag} records of a partition behind")
            if not input_.joined:
                of_role.append("not in its consumer group yet")
            elif not input_.settled:
                of_role.append("no share of its consumer group's work yet")
            not_read = input_.not_read()
            if not_read and not observer.refused:
                of_role.append(f"not opened yet: {not_read}")
            elif back := observer.reading_ids:
                of_role.append(f"still reading the round ids of {sorted(back)}")
            if role.trouble:
                of_role.append(role.trouble)
            reasons += [f"{role.name}: {reason}" for reason in of_role]
            reasons += [f"shard {s}: {why}" for s, why in observer.refused.items()]
            reasons += observer.refused_ladders.values()
        return reasons


def run(settings: Settings, roles: frozenset[str]) -> None:
    """Run these roles of the service until SIGTERM or SIGINT. Raises BadConfiguration or Failed."""
    ladders = ladders_of_settings(settings)
    with named_failures():
        selfcheck.check()  # before it joins a group, so kernels are compiled by then
        service = Service(settings, ladders, roles)
        # If librdkafka is closed while a rebalance begins, it may hang with the interpreter's lock.
        service.on_stop = partial(faulthandler.dump_traceback_later, STOP_TIMEOUT_S, exit=True)
        startup.configure()
        server = _serve_http(settings, service)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: service.stop())
        try:
            service.run()
        finally:
            if server is not None:
                server.close()


def _serve_http(settings: Settings, service: Service) -> http.ProbeServer | None:
    if not settings.http:
        return None
    registry = service.metrics.registry
    app = http.application(registry, service.unhealthy, service.unready, settings.http)
    try:
        server = http.ProbeServer(settings.http, app)
    except (OSError, ValueError) as error:
        raise BadConfiguration(
            f"http {settings.http!r}: {error}: set {PREFIX}HTTP to another host:port; port 0 picks "
            "a free one"
        ) from None
    service.log.info("http", port=server.port)
    return server
