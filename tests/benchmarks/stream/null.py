"""The null pipeline: what Kafka and Python cost when nothing is rated and nothing kept. In the
service's place, with its settings and clients' options, it reads and decodes rounds (usual ones by
msgspec alone), regroups their players by shard, sends a message a shard through
performance-estimated, and writes an event a player, of the size and with the headers of the
service's, in transactions with the offsets. No mathematics, no Redis, no defence against a crash.
It groups players as the service did, or into large groups, or (for latency) as a poll returns."""

import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from stream_rater.adapters.access import CLIENT_LOGGER, client_options
from stream_rater.adapters.kafka.producers import NOW
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.columns.sharding import shards_of
from stream_rater.config.files import read_settings
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS, MAX_RANK, UPDATERS, Round, round_from_json
from stream_rater.pipeline.estimator.progress import COMMIT_EVERY_S

PlainId = Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
"""32 characters are never over 128 bytes."""
PlainRank = Annotated[int, msgspec.Meta(ge=1, le=MAX_RANK)]


class PlainEntry(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A player alone, who finished."""

    player: PlainId
    rank: PlainRank


class PlainRound(Round, frozen=True, kw_only=True, gc=False):
    """A round in which all entries are plain: it decodes to what is valid, or not at all."""

    standings: list[PlainEntry]


class PlainTeam(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A team that finished, all of whose members played the whole round."""

    team: list[PlainId]
    rank: PlainRank


class PlainTeams(Round, frozen=True, kw_only=True, gc=False):
    """A round of such teams."""

    standings: list[PlainTeam]


plain_teams_from_json = msgspec.json.Decoder(PlainTeams).decode
plain_round_from_json = msgspec.json.Decoder(PlainRound).decode


MODEL = "NULL_MODEL"  # Variable that names the file that says what the service does.
NUMBERS = 120  # Bytes of an event that no compression shortens: seven numbers of 17 digits.
AT_ONCE = 10_000
MOMENT_S = 0.01
ANSWER_S = 30.0


class Sample(msgspec.Struct, frozen=True):
    """The size and headers of an event of the service, which events here must have, too."""

    size: int
    headers: list[tuple[str, bytes]]


class Cuts(msgspec.Struct, frozen=True):
    """The mean numbers of players that are sent in a wave, and written in a transaction."""

    wave: float
    transaction: float


LARGE_CUTS = Cuts(20_000, 50_000)


class Model(msgspec.Struct, frozen=True):
    sample: Sample
    cuts: Cuts | None  # None: groups are polls, with parts in transactions.


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Players of one shard, and the round of each."""

    ladders: list[str]
    round_ids: list[str]
    index: list[int]
    place: list[int]
    players: list[str]


_encode = msgspec.msgpack.Encoder().encode
_decode_part = msgspec.msgpack.Decoder(Part).decode


def hop(settings: Settings, shards: int) -> None:
    """Turn rounds into parts for ever: each poll in a transaction, with its offsets."""
    topics = Topics.of(settings)
    consumer = _consumer(settings, topics.rounds, ESTIMATORS)
    producer = _transactional(settings, ESTIMATORS)
    for batch in _polls(consumer, _decoded):
        producer.begin_transaction()
        for shard, part in regrouped([each for each, _ in batch], shards):
            producer.produce(topics.parts, _encode(part), partition=shard)
        _commit(producer, consumer, _ends(batch))


def send_parts(settings: Settings, shards: int, wave: float) -> None:
    """Turn rounds into parts for ever. Acknowledged offsets are committed every COMMIT_EVERY_S."""
    topics = Topics.of(settings)
    consumer = _consumer(settings, topics.rounds, ESTIMATORS)
    producer = Producer(
        client_options(settings)
        | {"enable.idempotence": True, "linger.ms": 0, "compression.type": "lz4",
           "message.max.bytes": 16 * 2**20}, logger=CLIENT_LOGGER,
    )  # fmt: skip
    offsets = _transactional(settings, ESTIMATORS)
    came = _coming(consumer, _decoded)
    ends: dict[int, TopicPartition] = {}
    committed_s = 0.0
    for batch in in_groups(came, _players_of, wave):
        if batch:
            for shard, part in regrouped([each for each, _ in batch], shards):
                producer.produce(topics.parts, _encode(part), partition=shard)
            assert producer.flush(ANSWER_S) == 0
            ends |= _ends(batch)
        if ends and time.monotonic() - committed_s >= COMMIT_EVERY_S:
            offsets.begin_transaction()
            _commit(offsets, consumer, ends)
            ends.clear()
            committed_s = time.monotonic()


Come = tuple[Any, Message]  # A decoded value, and its message.


def _polls(consumer: Consumer, decode: Callable[[bytes], Any]) -> Iterator[list[Come]]:
    """The messages of each poll that returns any, for ever."""
    while True:
        if messages := consumer.consume(AT_ONCE, 0.0) or consumer.consume(1, MOMENT_S):
            yield [(decode(each.value() or b""), each) for each in messages]


def _coming(consumer: Consumer, decode: Callable[[bytes], Any]) -> Iterator[Come | None]:
    """All messages, for ever; None if none comes within MOMENT_S."""
    while True:
        messages = consumer.consume(AT_ONCE, 0.0) or consumer.consume(1, MOMENT_S)
        for each in messages:
            yield decode(each.value() or b""), each
        if not messages:
            yield None


def in_groups(
    came: Iterable[Come | None], players: Callable[[Any], int], at_a_time: float
) -> Iterator[list[Come]]:
    """Groups of so many players on average. A group, even an empty one, also ends after a pause."""
    group: list[Come] = []
    seen, until = 0, at_a_time
    for each in came:
        if each is not None:
            group.append(each)
            seen += players(each[0])
        if each is None or seen >= until:
            yield group
            group = []
            until += at_a_time
        if each is None:
            seen, until = 0, at_a_time


def _ends(group: Iterable[Come]) -> dict[int, TopicPartition]:
    """By partition, the offset after the last message."""
    last: dict[Any, Any] = {message.partition(): message for _, message in group}
    return {p: TopicPartition(m.topic(), p, m.offset() + 1) for p, m in last.items()}


def _players_of(round_: Any) -> int:
    if isinstance(round_, PlainRound):
        return len(round_.standings)
    return sum(len(members_of(entry)) for entry in round_.standings)


def members_of(entry: Any) -> Sequence[str]:
    """The players of an entry of a round, however it was decoded."""
    return (entry.player,) if getattr(entry, "team", None) is None else entry.team


_DECODERS = [plain_round_from_json, plain_teams_from_json, round_from_json]
"""The decoders; the one that succeeded last comes first."""


def _decoded(value: bytes) -> Any:
    for i, decode in enumerate(_DECODERS):
        try:
            found = decode(value)
        except msgspec.ValidationError:
            continue
        _DECODERS.insert(0, _DECODERS.pop(i))
        return found
    raise AssertionError(f"no round: {value!r}")


def regrouped(rounds: Sequence[Any], shards: int) -> Iterator[tuple[int, Part]]:
    """Each shard's players of some rounds."""
    players, place, sizes = list[str](), list[int](), list[int]()
    for each in rounds:
        before = len(players)
        for entry in each.standings:
            members = members_of(entry)
            players += members
            place += [entry.rank or 0] * len(members)
        sizes.append(len(players) - before)
    index = np.repeat(np.arange(len(rounds)), sizes)
    shard = shards_of(players, shards)
    order = np.argsort(shard, kind="stable")
    ladders, round_ids = [each.ladder for each in rounds], [each.round_id for each in rounds]
    bounds = np.searchsorted(shard[order], np.arange(shards + 1)).tolist()
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        if start < end:
            rows = order[start:end].tolist()
            mine = index[rows].tolist()
            some = [place[i] for i in rows], [players[i] for i in rows]
            yield number, Part(ladders, round_ids, mine, *some)


def gather(settings: Settings, sample: Sample, transaction: float | None) -> None:
    """Turn parts into events for ever, in transactions of this size; None: one for each poll."""
    topics = Topics.of(settings)
    consumer = _consumer(settings, topics.parts, UPDATERS)
    producer = _transactional(settings, UPDATERS)
    event: Any = _event_maker(sample)
    groups = _polls(consumer, _decode_part)
    if transaction is not None:
        came = _coming(consumer, _decode_part)
        groups = filter(None, in_groups(came, lambda part: len(part.players), transaction))
    for group in groups:
        producer.begin_transaction()
        for part, message, rows in _interleaved(group):
            shard = message.partition()
            for index, player in zip(part.index[rows], part.players[rows], strict=True):
                key, value, headers = event(part.ladders[index], part.round_ids[index], player)
                producer.produce(topics.changed, value, key, shard, None, None, NOW, headers)
        _commit(producer, consumer, _ends(group))


def _interleaved(group: Sequence[Come]) -> Iterator[tuple[Part, Any, slice]]:
    """A row of each part first, so that a transaction adds all partitions at once, as ours does."""
    for rows in slice(0, 1), slice(1, None):
        for part, message in group:
            yield part, message, rows


def _transactional(settings: Settings, group: str) -> Producer:
    """The producer of a group's member that commits in transactions."""
    producer = Producer(
        client_options(settings)
        | {"linger.ms": 1, "compression.type": "lz4",
           "transactional.id": f"{settings.topic_prefix}{group}-{settings.instance_id}",
           "queue.buffering.max.messages": 1_000_000}, logger=CLIENT_LOGGER,
    )  # fmt: skip
    producer.init_transactions(ANSWER_S)
    return producer


def _commit(producer: Producer, consumer: Consumer, ends: Mapping[int, TopicPartition]) -> None:
    """Commit the open transaction, with these offsets."""
    member = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction(list(ends.values()), member, ANSWER_S)
    producer.commit_transaction(ANSWER_S)


Event = tuple[str, bytes, list[tuple[str, bytes]]]


def _event_maker(sample: Sample) -> Callable[[str, str, str], Event]:
    """Makes the key, value and headers for a ladder, a round and a player."""
    digits = "".join(random.Random(1).choices("0123456789", k=2**16)).encode()
    starts = itertools.cycle(range(len(digits) - NUMBERS))
    pad = b"x" * sample.size
    common = [each for each in sample.headers if each[0] != "ce_id"]

    def event(ladder: str, round_id: str, player: str) -> Event:
        start = next(starts)
        event_id = f"{ladder}:{round_id}:{player}".encode()
        numbers = digits[start : start + NUMBERS]
        filling = pad[len(event_id) + NUMBERS :]
        headers = [*common, ("ce_id", event_id)] if common else common
        return f"{ladder}:{player}", event_id + numbers + filling, headers

    return event


def _consumer(settings: Settings, topic: str, group: str) -> Consumer:
    consumer = Consumer(
        client_options(settings)
        | {
            "group.id": settings.topic_prefix + group, "group.instance.id": settings.instance_id,
            "session.timeout.ms": settings.session_timeout_ms, "isolation.level": "read_committed",
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 10,
        },
        logger=CLIENT_LOGGER,
    )  # fmt: skip
    consumer.subscribe([topic])
    return consumer


def main() -> None:
    """Run the stages of the role until the process is killed. It ends if a stage fails."""
    settings, role = read_settings(), sys.argv[-1]  # run --role ROLE
    model = msgspec.json.decode(Path(os.environ[MODEL]).read_bytes(), type=Model)
    shards = Admin(settings).check_topics()[Topics.of(settings).parts]
    shards_of(["a"], shards)  # loads its kernel, as the service does before it joins
    cuts, stages = model.cuts, dict[str, Callable[[], None]]()
    if cuts is None:
        stages["estimator"] = partial(hop, settings, shards)
    else:
        stages["estimator"] = partial(send_parts, settings, shards, cuts.wave)
    transaction = None if cuts is None else cuts.transaction
    stages["updater"] = partial(gather, settings, model.sample, transaction)
    for name, stage in stages.items():
        if role in ("all", name):
            threading.Thread(target=_or_end, args=(name, stage)).start()


def _or_end(name: str, stage: Callable[[], None]) -> None:
    try:
        stage()
    except BaseException as error:
        print(f"{name}: {error!r}", flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
