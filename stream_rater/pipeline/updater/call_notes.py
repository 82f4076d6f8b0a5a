"""What a call notes in `position.fresh`, so that step 11 can build its events again.

The notes have three parts:

1. One bit for each row, in order, high bit first: whether the row was fresh.
2. An EARLIER for each fresh row that is not its player's last one. A player may have several rounds
   in a batch. They are applied in order and the belief is written once, so that it remembers the mu
   and sigma before the last of them only. The note has those before the row.
3. A SHOWN for each fresh row whose belief was unannounced. A correction that hardly moves a rating
   changes the belief and publishes no event. The belief is marked (`untold` in its record), and its
   previous mu and sigma are those that were last published. The event of the player's next round
   begins with them, but the round's own previous mu and sigma are the corrected ones. The note has
   what was last published.
"""

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.model import Table

EARLIER = np.dtype([("mu", "<f4"), ("sigma", "<f4")])
"""The belief before an earlier row. It is exact, since beliefs hold these numbers as float32."""

SHOWN = np.dtype([("row", "<u4"), ("mu", "<f4"), ("sigma", "<f4")])
"""What was last published before a row, which is an index among the fresh rows. Exact, too."""

NOTHING = np.empty(0, SHOWN)


class Disagreement(ValueError):
    """The log and the store do not belong together."""

    def __init__(self, noted: bytes, rows: int, need: int) -> None:
        super().__init__(
            f"Redis and the log disagree: position.fresh has {len(noted)} bytes, {rows} rows need "
            f"{need}."
        )


def encode(fresh: Flags, shown: Table, cut: slice, header: Table, which: Ints | None) -> bytes:
    """The notes of a shard's call on n rows, of which `fresh` (n,) says which are fresh.

    `cut` is the range of these fresh rows among those of all shards; `header` holds the headers
    after those, and `shown` what was last published before them. `which` (k,) is the player of each
    fresh row of the shard; None if no player has two rows.
    """
    bits = np.packbits(fresh).tobytes()
    if len(shown):
        shown = shown[(shown["row"] >= cut.start) & (shown["row"] < cut.stop)]
        shown["row"] -= cut.start
    if which is None:
        return bits + shown.tobytes()
    rows = header[cut][_is_earlier(which)]
    noted = np.empty(len(rows), EARLIER)
    noted["mu"], noted["sigma"] = rows["previous_mu"], rows["previous_sigma"]
    return bits + noted.tobytes() + shown.tobytes()


def decode(noted: bytes, which: Ints) -> tuple[Ints, Table, Table]:
    """The (k,) fresh rows of a call, and what it noted of earlier rows and as shown.

    `which` (n,) is the player of each row. Raises Disagreement if these cannot be notes of n rows.
    """
    size = (len(which) + 7) // 8
    bits = np.frombuffer(noted[:size], np.uint8)
    fresh = np.flatnonzero(np.unpackbits(bits, count=len(which)))
    end = size + EARLIER.itemsize * int(np.count_nonzero(_is_earlier(which[fresh])))
    if len(noted) < end or (len(noted) - end) % SHOWN.itemsize:
        raise Disagreement(noted, len(which), end)
    shown = np.frombuffer(noted[end:], SHOWN)
    if len(shown) and int(shown["row"].max()) >= len(fresh):
        raise Disagreement(noted, len(which), end)
    return fresh, np.frombuffer(noted[size:end], EARLIER), shown


@kernel
def _is_earlier(which: Ints) -> Flags:
    """(n,) whether a later row has the same player."""
    found = np.zeros(len(which), np.bool_)
    seen = np.zeros(which.max() + 1 if len(which) else 0, np.bool_)
    for i in range(len(which) - 1, -1, -1):
        found[i] = seen[which[i]]
        seen[which[i]] = True
    return found


def headers_after(header: Table, which: Ints, noted: Table) -> Table:
    """(n,) the headers after each fresh row, from the (D,) headers after all of them and what was
    noted of earlier rows.

    Only these fields are those after the row: mu, sigma, previous mu and sigma, and the number of
    rounds.
    """
    after = header[which]
    _go_back(after, which, noted)
    return after


@kernel
def _go_back(after: Table, which: Ints, noted: Table) -> None:
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


# --- what was last published ----------------------------------------------------------------------


def last_shown(header: Table) -> Table:
    """What was last published of the players with unannounced beliefs, by row of these (n,) headers
    before an update."""
    unannounced = header["untold"]
    if not unannounced.any():
        return NOTHING
    rows = np.flatnonzero(unannounced)
    shown = np.empty(len(rows), SHOWN)
    shown["row"] = rows
    shown["mu"], shown["sigma"] = header["previous_mu"][rows], header["previous_sigma"][rows]
    return shown


def at_first_rows(shown: Table, which: Ints, nth: Ints) -> Table:
    """Number what was shown of beliefs by the first row of each instead. Row i is of the belief
    which[i], and nth[i] rows of that belief come before it."""
    if not len(shown):
        return shown
    first = np.flatnonzero((nth == 0) & np.isin(which, shown["row"]))
    found: Table = shown[np.searchsorted(shown["row"], which[first])]
    found["row"] = first
    return found


def as_published(header: Table, shown: Table) -> Table:
    """(n,) headers after an update, as events present them: with what was last shown in place of
    the previous mu and sigma."""
    if not len(shown):
        return header
    published = header.copy()
    published["previous_mu"][shown["row"]] = shown["mu"]
    published["previous_sigma"][shown["row"]] = shown["sigma"]
    return published
