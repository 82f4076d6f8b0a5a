"""Players who repeat among the rows of a call: several rounds of a player in one batch.

Their rounds are applied in the order of the rows, and the belief is written once. A belief
remembers the mu and sigma before its last round only. So the call notes those before each earlier
fresh row of its player: with them, the events of all rows can be built again (step 11).
"""

from dataclasses import dataclass

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.player_map import NOTHING, TAKEN, Fingerprints, PlayerMap
from stream_rater.contract.record import Player
from stream_rater.pipeline.parts.rows import Rows
from stream_rater.rating.model import Table

NOTED = np.dtype([("mu", "<f4"), ("sigma", "<f4")])
"""What is noted of an earlier row: exact, since a belief holds these numbers as float32."""


@dataclass(frozen=True, slots=True)
class Distinct:
    """The D players among n rows, in the order of their first rows."""

    first: Ints
    """(D,) the first row of each player."""
    which: Ints
    """(n,) the number of each row's player."""

    @property
    def repeat(self) -> bool:
        """Whether a player has two rows."""
        return len(self.first) < len(self.which)


def distinct(players: PlayerColumn, fingerprints: Fingerprints, shard: Ints) -> Distinct:
    """Find the players who repeat in a shard; shard[i] is the number of row i's. Rows of one player
    have one fingerprint; others may share it."""
    rows = np.arange(len(players))
    if (PlayerMap().note(fingerprints | TAKEN, rows) == NOTHING).all():
        return Distinct(rows, rows)
    numbers: dict[tuple[int, Player], int] = {}
    each = zip(shard.tolist(), players, strict=True)
    which = np.array([numbers.setdefault(one, len(numbers)) for one in each], np.int64)
    return Distinct(np.unique(which, return_index=True)[1], which)


def in_one_shard(rows: Rows) -> Distinct:
    """The players among rows of one shard."""
    return distinct(rows.players, rows.fingerprints, np.zeros(len(rows), np.int64))


@kernel
def turns(which: Ints, offset: Ints, last: Ints) -> tuple[Flags, Ints]:
    """(n,) whether each row is fresh, and (n,) how many fresh rows of its player come before it.

    `last` (D,) is the offset of each player's last round, and is raised to that of the last fresh
    row. A row is fresh if its offset is after it.
    """
    fresh, turn = np.zeros(len(which), np.bool_), np.zeros(len(which), np.int64)
    seen = np.zeros(len(last), np.int64)
    for i in range(len(which)):
        player = which[i]
        if offset[i] > last[player]:
            fresh[i], turn[i], last[player] = True, seen[player], offset[i]
            seen[player] += 1
    return fresh, turn


@kernel
def earlier(which: Ints) -> Flags:
    """(n,) whether a later row has the same player."""
    found = np.zeros(len(which), np.bool_)
    seen = np.zeros(which.max() + 1 if len(which) else 0, np.bool_)
    for i in range(len(which) - 1, -1, -1):
        found[i] = seen[which[i]]
        seen[which[i]] = True
    return found


def note(header: Table, which: Ints) -> bytes:
    """What step 11 needs beside the beliefs, from the (n,) headers after fresh rows."""
    rows = header[earlier(which)]
    noted = np.empty(len(rows), NOTED)
    noted["mu"], noted["sigma"] = rows["previous_mu"], rows["previous_sigma"]
    return noted.tobytes()


def size_of_note(which: Ints) -> int:
    """The bytes of what `note` notes of fresh rows."""
    return NOTED.itemsize * int(np.count_nonzero(earlier(which)))


def recall(header: Table, which: Ints, noted: bytes) -> Table:
    """(n,) the headers after each fresh row, from the (D,) beliefs after all, and what was noted.

    Only mu, sigma, those before the row, and the number of rounds are those of the row.
    """
    after = header[which]
    _recall(after, which, np.frombuffer(noted, NOTED))
    return after


@kernel
def _recall(after: Table, which: Ints, noted: Table) -> None:
    following = np.full(which.max() + 1 if len(which) else 0, -1)
    k = len(noted) - 1
    for i in range(len(which) - 1, -1, -1):
        own, later = after[i], following[which[i]]
        if later >= 0:
            own.mu, own.sigma = after[later].previous_mu, after[later].previous_sigma
            own.rounds = after[later].rounds - 1
            own.previous_mu, own.previous_sigma = noted[k].mu, noted[k].sigma
            k -= 1
        following[which[i]] = i
