"""The notes that a call writes to `position.fresh`, so that step 11 can build its events again.

The notes have three parts:

1. One bit for each row, in order, high bit first. It says whether the row was fresh.
2. An EARLIER for each fresh row that is not its player's last one: the mu and sigma before the row.
   A player may have several rounds in a batch. They are applied in order, and the belief is written
   once. So the belief itself stores only the mu and sigma before the last of them.
3. A SHOWN for each fresh row whose belief was unannounced: the mu and sigma that were last
   published. A correction that hardly moves a rating changes the belief and publishes no event. The
   belief is marked (`untold` in its record), and its previous mu and sigma are those that were last
   published. The event of the player's next round has these as its previous mu and sigma, although
   the round itself began with the corrected ones.
"""

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.model import Table

EARLIER = np.dtype([("mu", "<f4"), ("sigma", "<f4")])
"""The belief before an earlier row. The values are exact, since beliefs store these numbers as
float32."""

SHOWN = np.dtype([("row", "<u4"), ("mu", "<f4"), ("sigma", "<f4")])
"""The mu and sigma that were last published before a row. `row` is its index among the fresh rows.
The values are exact, too."""

NOTHING = np.empty(0, SHOWN)


class Disagreement(ValueError):
    """The log and the store do not belong together."""

    def __init__(self, noted: bytes, rows: int, need: int) -> None:
        super().__init__(
            f"Redis and the log disagree: position.fresh has {len(noted)} bytes, {rows} rows need "
            f"{need}."
        )


def encode(fresh: Flags, shown: Table, cut: slice, header: Table, which: Ints | None) -> bytes:
    """Encode the notes of a shard's call on n rows. `fresh` (n,) says which of them are fresh.

    `cut` is the range of this shard's fresh rows among the fresh rows of all shards. `header` has
    the headers after the fresh rows of all shards, and `shown` the values that were last published
    before them. `which` (k,) is the index of the player of each fresh row of the shard; None if no
    player has two rows.
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
    """Decode a call's notes: the (k,) indices of its fresh rows, an EARLIER for each earlier row,
    and the SHOWN values.

    `which` (n,) is the index of each row's player. Raises Disagreement if these cannot be the notes
    of n rows.
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
    """(n,) the headers after each fresh row. `header` (D,) has the players' headers after all rows,
    and `noted` the EARLIER of each earlier row.

    Only these fields have their values after the row: mu, sigma, previous mu and sigma, and the
    number of rounds.
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
    """The SHOWN values of the players with unannounced beliefs. `header` (n,) has the headers
    before an update; `row` is the index among them."""
    unannounced = header["untold"]
    if not unannounced.any():
        return NOTHING
    rows = np.flatnonzero(unannounced)
    shown = np.empty(len(rows), SHOWN)
    shown["row"] = rows
    shown["mu"], shown["sigma"] = header["previous_mu"][rows], header["previous_sigma"][rows]
    return shown


def at_first_rows(shown: Table, which: Ints, nth: Ints) -> Table:
    """Replace the belief's index in SHOWN values by the index of the belief's first row. Row i
    belongs to the belief which[i], and nth[i] rows of that belief come before it."""
    if not len(shown):
        return shown
    first = np.flatnonzero((nth == 0) & np.isin(which, shown["row"]))
    found: Table = shown[np.searchsorted(shown["row"], which[first])]
    found["row"] = first
    return found


def as_published(header: Table, shown: Table) -> Table:
    """(n,) the headers after an update as events publish them. The SHOWN values replace the
    previous mu and sigma."""
    if not len(shown):
        return header
    published = header.copy()
    published["previous_mu"][shown["row"]] = shown["mu"]
    published["previous_sigma"][shown["row"]] = shown["sigma"]
    return published
