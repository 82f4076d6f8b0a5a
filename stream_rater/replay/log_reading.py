"""Reads and validates a whole log, ahead of its replay and on several cores.

Reading and validating the records of small rounds takes longer than rating them, and most of it
holds the interpreter's lock. So it is done by other processes, if the log is long enough: each has
some of the partitions. A record's verdict depends on earlier records of its partition alone, so the
outcome is the same as in one process. The records of a partition come in order. Only columns come
back, without the texts of rounds other than their players and ladders.
"""

import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from stream_rater.columns import arrays, strings
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import Ladders
from stream_rater.contract import events, record
from stream_rater.replay import edited_log, files
from stream_rater.replay.cores import Cores
from stream_rater.rounds import lines
from stream_rater.rounds.correction_records import Seed
from stream_rater.rounds.decoder import RoundDecoder

LONG_LOG = 1_000_000
"""A log of at least this many records is read by processes. To start them takes as long as to read
some 100,000 records."""
MOST_PROCESSES = 4  # The most processes that read. That many keep one process that rates busy.
MOST_AHEAD = 4  # The number of batches that are validated ahead of the replay.
END = b"end"  # The last message that a process sends.


LogSource = Callable[[Mapping[int, int]], Iterable[Sequence[record.Record]]]
"""Yields the records of these partitions, each up to its end, in batches. The records of each
partition come in order. It can be called more than once, and pickled for another process."""


class LogReader(NamedTuple):
    """Reads all records of `round-completed`."""

    source: LogSource
    ends: Mapping[int, int]  # The end offset of each partition.

    @classmethod
    def of(cls, read: Callable[[], Iterable[record.Record]]) -> "LogReader":
        """A log that only this process can read. `read` yields all records at each call."""
        return cls(lambda _: edited_log.batches_of(read(), mixed=True), {})

    @property
    def total(self) -> int:
        return sum(self.ends.values())

    def records(self) -> lines.RecordBatches:
        return lines.RecordBatches(lambda: self.source(self.ends))

    @contextmanager
    def validated(
        self, validator: edited_log.RecordValidator, cores: Cores
    ) -> Iterator[Iterator[edited_log.ValidRecords]]:
        """Within the block, all records, validated by `validator`, or by other processes that have
        validators with the same arguments. Raises Failed if such a process ends."""
        shares = _shares(self.ends, min(cores.count, MOST_PROCESSES))
        if cores.count == 1 or self.total < LONG_LOG:
            batches = map(validator.validated, self.source(self.ends))
            yield cores.ahead(batches, MOST_AHEAD)
            return
        asked = [(self.source, share, *validator.arguments) for share in shares]
        with _readers(asked) as connections:
            received = files.prefetched(_received(connections), MOST_AHEAD)
            yield (_unpacked(each, validator.round_decoder) for each in received)


def _shares(ends: Mapping[int, int], most: int) -> list[dict[int, int]]:
    """The ends of the partitions that have records, in at most `most` shares with about as many
    records each."""
    shares: list[dict[int, int]] = [{} for _ in range(most)]
    for partition, end in sorted(ends.items(), key=lambda each: -each[1]):
        if end:
            min(shares, key=lambda share: sum(share.values()))[partition] = end
    return [share for share in shares if share]


# --- in the other processes -----------------------------------------------------------------------


def _read(
    connection: Connection, source: LogSource, ends: Mapping[int, int], ladders: Ladders,
    window: int, partitions: int,
) -> None:  # fmt: skip
    """Read and validate, and send each batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asked ends this one
    validator = edited_log.RecordValidator(ladders, window, partitions)
    with suppress(BrokenPipeError):  # the process that asked was killed
        try:
            for records in source(ends):
                valid = validator.validated(records)
                connection.send_bytes(_packed(valid, validator.round_decoder))
        except Exception as error:
            connection.send_bytes(pickle.dumps(error))
        else:
            connection.send_bytes(END)


def _packed(valid: edited_log.ValidRecords, decoder: RoundDecoder) -> bytes:
    rounds = [each for each in valid.content if isinstance(each, edited_log.LoggedRounds)]
    groups = (edited_log.NO_LOGGED, *rounds)
    used = np.unique(np.concatenate([each.rounds.config_index for each in groups]))
    content = [
        _small(each, used) if isinstance(each, edited_log.LoggedRounds) else each
        for each in valid.content
    ]
    rejected = [(record.Record(r.partition, r.offset, None), why) for r, why in valid.rejected]
    ratings = [decoder.ratings[i] for i in used.tolist()]
    return pickle.dumps(
        (edited_log.ValidRecords(valid.count, content, rejected), ratings), pickle.HIGHEST_PROTOCOL
    )


def _small(logged: edited_log.LoggedRounds, used: arrays.Ints) -> edited_log.LoggedRounds:
    """The rounds with heads that have no other text than the ladder, and without the hashes of this
    process. Their `config_index` becomes an index into `used`."""
    rounds, names = logged.rounds, logged.rounds.names
    ladders = [head.ladder for head in rounds.heads]
    heads = {each: events.Round(round_id="", ladder=each, completed_at="") for each in set(ladders)}
    small = structs.replace(
        rounds, heads=[heads[each] for each in ladders],
        names=strings.StringColumn(names.data, names.starts, names.ends),
        config_index=np.searchsorted(used, rounds.config_index),
    )  # fmt: skip
    return structs.replace(logged, rounds=small)


# --- in the process that replays ------------------------------------------------------------------


@contextmanager
def _readers(asked: Sequence[tuple[Any, ...]]) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    connections, processes = list[Connection](), list[Any]()
    try:
        for each in asked:
            receiving, sending = context.Pipe(duplex=False)
            connections.append(receiving)
            processes.append(context.Process(target=_read, args=(sending, *each), daemon=True))
            processes[-1].start()
            sending.close()
        yield connections
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()
        for connection in connections:
            connection.close()


def _received(connections: Iterable[Connection]) -> Iterator[bytes]:
    left = list(connections)
    while left:
        for connection in wait(left):
            assert isinstance(connection, Connection)
            try:
                data = connection.recv_bytes()
            except EOFError:
                raise Failed(
                    "a process that read the log has ended: run it again, with --cores 1 if memory "
                    "is short"
                ) from None
            if data == END:
                left.remove(connection)
            else:
                yield data


def _unpacked(data: bytes, decoder: RoundDecoder) -> edited_log.ValidRecords:
    """What a process has sent. Its configurations become those of this decoder."""
    found = pickle.loads(data)
    if isinstance(found, Exception):
        raise found
    valid, ratings = found
    index = np.array([decoder.adopt(each) for each in ratings], np.int64)

    def adopted(each: edited_log.Content) -> edited_log.Content:
        if isinstance(each, edited_log.LoggedRounds):
            numbers = index[each.rounds.config_index] if len(each) else each.rounds.config_index
            return structs.replace(each, rounds=structs.replace(each.rounds, config_index=numbers))
        if isinstance(each, Seed):
            return replace(each, rating=decoder.ratings[decoder.adopt(each.rating)])
        return each

    return edited_log.ValidRecords(valid.count, [*map(adopted, valid.content)], valid.rejected)
