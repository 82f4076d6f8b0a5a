"""Runs every role with all of its rights but one, all at once, and collects how each ends. Roles
that only read share the topics of a place where all is rated; the others have copies of these. Each
case has a user and a database of its own."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from stream_rater.adapters.kafka.season_topic import SeasonTopic
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.metadata import LAYOUT_KEY
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS, UPDATERS, joined, to_json
from stream_rater.contract.season_ended import PageWritten, encoded
from stream_rater.replay.checkpoint import CheckpointHead, encode
from tests.builders.indexes import an_event
from tests.builders.lines import Bytes
from tests.integration import rights
from tests.integration.castle import NOWHERE, Castle, database_of, some_rounds
from tests.integration.rights import Rights, least, least_to_erase
from tests.integration.role_runs import SERVING, Ended, run_command, run_worker, streams_by_thread
from tests.integration.secured import Acl
from tests.integration.topics import headers_of, produce, read_topic
from tests.waits import STILL_S, wait_until

AT_ONCE = 16
NEW = "new."

COMMANDS = {
    "submit": ["submit", "FILE"], "correct": ["correct", "merge", "eu", "ann", "bob"],
    "correct --dry-run": ["correct", "void", "eu", "r0", "--dry-run"],
    "seed --from-ladder": ["seed", "--from-ladder", "eu", "--ladder", "new", "--yes"],
    "tune": ["tune", "--from-topic", "--ladder", "eu"],
    "watch": ["watch", "--from-start", "--count", "1"],
    "rejected": ["rejected", "--from-start", "--count", "1"], "verify": ["verify", "--wait", "0"],
    "rebuild": ["rebuild", "--replace"], "inspect": ["inspect"],
    "inspect --player": ["inspect", "--ladder", "eu", "--player", "ann"],
    "predict": ["predict", "--ladder", "eu", "ann", "bob"], "checkpoint": ["checkpoint", "eu"],
    "erase": ["erase", "ann", "--to", "NEW"],
    "erase --delete-old": ["erase", "ann", "--to", "NEW", "--delete-old"],
    rights.SEASONS: ["season-standings", "eu"],
}  # fmt: skip
WORKERS = {"estimator": frozenset({"estimator"}), "updater": frozenset({"updater"})}
WRITING = {  # Roles that would change what others read: each case has topics of its own.
    "submit", "correct", "seed --from-ladder", "rebuild", "erase --delete-old",
    "serve with writing",
}  # fmt: skip
VARIED = {"erase --delete-old", *SERVING} - {"serve"}  # Their rights include another role's.
KAFKA, REDIS = "kafka", "redis"
TOO_FEW = "1 rounds to tune on"  # `tune` with all its rights ends here.
AFTER_CORRECTIONS = {
    ("estimator", "READ TOPIC performance-estimated"),
    ("rebuild", "READ TOPIC rating-changed"),
}
"""Rights that are needed only once parts were applied, or a ladder was corrected."""


class Case(NamedTuple):
    """A role without one of its rights; with none named, it has all."""

    role: str
    server: str = ""
    lacks: str = ""

    def __str__(self) -> str:
        return f"{self.role} without {self.lacks}" if self.lacks else f"{self.role} with all"


def rights_of(role: str, at: Settings) -> Rights:
    if not role.startswith("erase"):
        return least(role, at)
    to_copy = least_to_erase(at, new_prefix(at))
    if role == "erase":
        return to_copy
    deleting = [Acl("TOPIC", name, "DELETE") for name in Topics.of(at).names]
    return replace(to_copy, kafka=(*to_copy.kafka, *deleting))


def new_prefix(at: Settings) -> str:
    """The prefix of the topics that `erase` writes: another one for each database."""
    return f"{NEW}{database_of(at)}." if at.topic_prefix else NEW


def names_of(role: str) -> Rights:
    return rights_of(role, NOWHERE)


def cases_of(role: str) -> Iterator[Case]:
    """The role with all its rights, and without each right that no other role's cases check."""
    yield Case(role)
    known = names_of(role.split(maxsplit=1)[0]) if role in VARIED else Rights((), ())
    needed = names_of(role)
    yield from (Case(role, KAFKA, str(each)) for each in needed.kafka if each not in known.kafka)
    optional = {*known.redis, rights.KNOWING}
    yield from (Case(role, REDIS, each) for each in needed.redis if each not in optional)


CASES = [case for role in (*WORKERS, *COMMANDS, *SERVING) for case in cases_of(role)]


@dataclass
class Runs:
    castle: Castle
    folder: Path
    pool: ThreadPoolExecutor
    parts: Sequence[Bytes] = ()  # What an estimator has sent to the updaters.
    records: dict[str, list[Bytes]] = field(default_factory=dict)
    """By topic, the records of the place where all is rated."""
    futures: dict[Case, "Future[Ended]"] = field(default_factory=dict)

    def command(self, role: str, settings: Settings) -> Ended:
        """Run a role's command; `checkpoint` twice, since the second reads what the first made."""
        given = {"FILE": str(self.folder / "rounds.jsonl"), "NEW": new_prefix(settings)}
        words = [given.get(each, each) for each in COMMANDS[role]]
        ended = run_command(words, settings, self.folder)
        if role == "checkpoint" and ended.code == 0:
            return run_command(words, settings, self.folder)
        return ended

    def runner(self, role: str, at: Settings) -> Callable[[Settings], Ended]:
        """A function that runs this role at a place with a user's settings."""
        if role in WORKERS:
            return partial(run_worker, self.castle.owner(at), WORKERS[role])
        return SERVING.get(role) or partial(self.command, role)

    def start(self, placed: Mapping[Case, Settings]) -> None:
        users = self.castle.given([(at, lacking(case, at)) for case, at in placed.items()])
        for user, (case, at) in zip(users, placed.items(), strict=True):
            self.futures[case] = self.pool.submit(self.ended, case, at, user)

    def ended(self, case: Case, at: Settings, user: Settings) -> Ended:
        try:
            return self.runner(case.role, at)(user)
        finally:
            gc.collect()  # ends clients in cycles, whose threads wake up many times a second

    def start_at_once(self, cases: Sequence[Case], rated: Settings) -> None:
        """Begin these cases, each at a place that suits it."""
        fresh = [case for case in cases if case.role in WORKERS]
        writing = [case for case in cases if case.role in WRITING]
        placed = dict(zip(fresh, self.castle.places(len(fresh)), strict=True))
        contents = dict[str, Sequence[Bytes]]()
        for case, at in placed.items():
            if case.role == "updater":
                contents[Topics.of(at).parts] = self.parts
            else:
                contents[Topics.of(at).rounds] = some_rounds()
        self.castle.fill(contents)
        placed |= zip(writing, self.copies(rated, len(writing)), strict=True)
        placed |= {case: self.sharing(rated) for case in cases if case not in placed}
        erasing = [at for case, at in placed.items() if case.role.startswith("erase")]
        self.castle.make_topics(
            msgspec.structs.replace(at, topic_prefix=new_prefix(at)) for at in erasing
        )
        self.start(placed)

    def wait(self, cases: Iterable[Case]) -> None:
        def running() -> list[str]:
            return [str(case) for case in cases if not self.futures[case].done()]

        wait_until(lambda: not running(), "every case has ended", moves=running, every_s=0.2)

    # --- places ---

    def estimated(self) -> list[Bytes]:
        """What an estimator with exactly its rights sends to the updaters."""
        at = self.castle.place()
        opened = self.castle.opened(at)
        produce(opened, some_rounds())
        self.start({Case("estimator"): at})
        self.wait([Case("estimator")])
        found = read_topic(opened, Topics.of(at).parts)
        return [Bytes(each.value(), partition=each.partition() or 0) for each in found]

    def rated(self) -> Settings:
        """A place with rated rounds, a rejection, half a checkpoint, and keys of an old index."""
        owner = self.castle.owner(self.castle.place())
        topics, admin = Topics.of(owner), Admin(owner)
        produce(owner, some_rounds())
        event = to_json(an_event("ann", 0, ladder="eu"))
        produce(owner, [Bytes(event, joined("eu", "ann").encode())], topics.changed)
        produce(owner, [Bytes(b"no round", b"eu")], topics.rejected)
        admin.commit(ESTIMATORS, topics.rounds, dict(enumerate(admin.ends(topics.rounds, 1))))
        done = run_command(COMMANDS["rebuild"], owner, self.folder)
        assert done.code == 0, done.err
        half = CheckpointHead(0, b"", (), (0, 0), 0, "", pieces=1)
        head = "stream-rater:checkpoints:eu", half.name, encode(half)
        self.castle.redis.put(database_of(owner), *head)
        for key in ("{stream-rater:index}", "stream-rater:index:tails"):  # of an earlier release
            self.castle.redis.put(database_of(owner), key, "0", b"")
        return owner

    def sharing(self, rated: Settings) -> Settings:
        """The same topics with a database of its own."""
        number = next(self.castle.databases)
        self.castle.redis.copy(database_of(rated), number)
        return self.castle.settings("nobody", rated.topic_prefix, number)

    def copies(self, rated: Settings, count: int) -> list[Settings]:
        """Places with topics and a database of their own, where the same is rated."""
        made = self.castle.places(count)
        old, admin = Topics.of(rated), Admin(rated)
        if not self.records:
            self.records |= {name: [*_records(rated, name)] for name in old.names}
        done = {
            (group, topic): admin.committed(group, topic, 1)[0]
            for group, topic in ((ESTIMATORS, old.rounds), (UPDATERS, old.parts))
        }
        prefix, kafka = rated.topic_prefix, self.castle.kafka.admin
        contents, commits = dict[str, list[Bytes]](), list[Any]()
        for at in made:
            contents |= {
                at.topic_prefix + name.removeprefix(prefix): some
                for name, some in self.records.items()
            }
            for (group, topic), offset in done.items():
                end = TopicPartition(at.topic_prefix + topic.removeprefix(prefix), 0, offset or 0)
                there = ConsumerGroupTopicPartitions(at.topic_prefix + group, [end])
                commits += kafka.alter_consumer_group_offsets([there]).values()
            self.castle.redis.copy(database_of(rated), database_of(at))
            topic_id = admin.topic_id(Topics.of(at).rounds)
            self.castle.redis.put(database_of(at), LAYOUT_KEY, "topic", topic_id)
        self.castle.fill(contents)
        for each in commits:
            each.result(STILL_S)
        return made

    def season(self) -> Settings:
        """A place where a season has ended, with a record in the topic of seasons."""
        owner = self.castle.owner(self.castle.place())
        header = ("event-type", b"season-started")
        season = Bytes(b'{"ladder": "eu", "season": 1}', b"eu", [header])
        for sent in (some_rounds(), [season]):
            produce(owner, sent)
            worked = run_worker(owner, frozenset(WORKERS), owner)
            assert worked.code == 0, worked.err
            if sent != [season]:
                done = run_command(COMMANDS["checkpoint"], owner, self.folder)
                assert done.code == 0, done.err
        store = SeasonTopic(owner, Admin(owner), "eu", 99)
        store.begin()
        mark = PageWritten(ladder="eu", season=99, page=0, pages=2, digest="d")
        store.write([encoded(mark, "2026-11-01T00:00:00Z")])
        return owner


def lacking(case: Case, at: Settings) -> Rights:
    named, there = names_of(case.role), rights_of(case.role, at)
    if not case.lacks:
        return there
    names: list[str] = [*map(str, named.kafka), *named.redis]
    given: list[Any] = [*there.kafka, *there.redis]
    return there.without(given[names.index(case.lacks)])


def _records(owner: Settings, topic: str) -> Iterator[Bytes]:
    """All records of a topic. Fails if an offset has none."""
    for expected, each in enumerate(read_topic(owner, topic)):
        assert each.offset() == expected, topic
        yield Bytes(each.value(), each.key(), headers_of(each))


def outcomes(castle: Castle, folder: Path, cases: Sequence[Case]) -> dict[Case, Ended]:
    sent = [each.value or b"" for each in some_rounds()]
    (folder / "rounds.jsonl").write_bytes(b"\n".join([sent[0], sent[2]]))
    with streams_by_thread(), ThreadPoolExecutor(AT_ONCE) as pool:
        runs = Runs(castle, folder, pool)
        in_turn = [case for case in cases if _has_a_turn(case)]
        season = pool.submit(runs.season) if in_turn else None
        rated = runs.rated()
        runs.start_at_once([case for case in cases if takes_long(case)], rated)
        if Case("estimator") in cases:
            runs.parts = runs.estimated()
        where = season.result() if season else rated
        loading = [case for case in cases if case.lacks == "+function|load"]
        castle.redis.client.function_flush()  # these cases find no functions, the others do
        runs.start_at_once(loading, rated)
        runs.wait(loading)
        RedisStore(rated).prepare()
        turns = pool.submit(_in_turn, runs, in_turn, where)
        done = {*runs.futures, *in_turn}
        runs.start_at_once([case for case in cases if case not in done], rated)
        runs.wait([*runs.futures])
        ended = {case: future.result() for case, future in runs.futures.items()}
        return ended | turns.result()


def _has_a_turn(case: Case) -> bool:
    """Whether a case runs at the place with a season, where cases run one by one."""
    if case.role == rights.SEASONS:
        return not takes_long(case)
    return (case.role, case.lacks) in AFTER_CORRECTIONS


def takes_long(case: Case) -> bool:
    """Whether a case ends only when a command's question about a group times out."""
    return "GROUP" in case.lacks and case.role in {*COMMANDS} - {"rebuild", "erase"}


def _in_turn(runs: Runs, cases: Sequence[Case], season: Settings) -> dict[Case, Ended]:
    """How the cases at the place with a season end; those that change it run last."""
    ordered = sorted(cases, key=lambda case: (case.role != rights.SEASONS, not case.lacks))
    users = runs.castle.given([(season, lacking(case, season)) for case in ordered])
    return {case: runs.ended(case, season, user) for case, user in zip(ordered, users, strict=True)}
