"""The tables of a data file, and what changes between formats. A *place* is a partition and an
offset in one integer, so that each partition is appended to in the order of its key, and a range of
offsets is one scan."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

APPLICATION_ID = 0x53524154  # "SRAT". It is in the header of each SQLite file that is ours.
FORMAT = 1  # The format that this release writes, as `user_version` in the file's header.
OFFSET_BITS = 44


def place(partition: int, offset: int) -> int:
    """The key of a record: `partition << 44 | offset`."""
    return partition << OFFSET_BITS | offset


def partition_of(place_: int) -> int:
    return place_ >> OFFSET_BITS


def offset_of(place_: int) -> int:
    return place_ & ((1 << OFFSET_BITS) - 1)


CREATE = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE rounds (
    place INTEGER PRIMARY KEY, key BLOB, value BLOB, headers BLOB, received_s REAL NOT NULL
);
CREATE TABLE parts (place INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE starts (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE changed (place INTEGER PRIMARY KEY, count INTEGER NOT NULL, events BLOB NOT NULL);
CREATE TABLE last_changed (
    shard INTEGER NOT NULL, key BLOB NOT NULL, offset INTEGER NOT NULL, event BLOB NOT NULL,
    PRIMARY KEY (shard, key)
) WITHOUT ROWID;
CREATE INDEX last_changed_offsets ON last_changed (shard, offset);
CREATE TABLE rejected (
    id INTEGER PRIMARY KEY, place INTEGER NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL,
    ladder TEXT NOT NULL, round_id TEXT NOT NULL, unreadable TEXT NOT NULL
);
CREATE TABLE ladder_events (id INTEGER PRIMARY KEY, event BLOB NOT NULL);
CREATE TABLE committed (
    consumers TEXT NOT NULL, partition INTEGER NOT NULL, next INTEGER NOT NULL,
    PRIMARY KEY (consumers, partition)
) WITHOUT ROWID;
CREATE TABLE positions (
    shard INTEGER PRIMARY KEY, applied INTEGER NOT NULL, start INTEGER NOT NULL,
    fresh BLOB NOT NULL, epoch BLOB NOT NULL, tail INTEGER
);
CREATE TABLE beliefs (
    shard INTEGER NOT NULL, ladder TEXT NOT NULL, player TEXT NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (shard, ladder, player)
) WITHOUT ROWID;
CREATE TABLE recent (id INTEGER PRIMARY KEY, shard INTEGER NOT NULL, beliefs BLOB NOT NULL);
CREATE TABLE checkpoints (
    ladder TEXT NOT NULL, name TEXT NOT NULL, head BLOB NOT NULL, PRIMARY KEY (ladder, name)
) WITHOUT ROWID;
CREATE TABLE pieces (
    ladder TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (ladder, name, number)
);
"""
"""`changed` has the events of a transaction in one row, and `last_changed` the last event of each
player whose last event was deleted from it. `recent` has the beliefs of the last calls, which are
newer than those in `beliefs`."""

UPGRADES: Mapping[int, str] = {}  # By format, the statements that lead from it to the next format.


@contextmanager
def private_files() -> Iterator[None]:
    """Files that are made within can be read by their user alone: they name players."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
