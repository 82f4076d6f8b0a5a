"""Corrections that were not told: what the next event of their players begins with.

A correction that hardly moves a rating changes the belief and tells nobody. The belief is marked
`untold`, and its previous mu and sigma are those that were last told. The player's next round is
rated from the corrected belief, and its event begins with what was last told.

That round's own previous mu and sigma are the corrected ones. So the call notes what was last told
for each such row: step 11 needs it to build the event again.
"""

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.rating.model import Table

TOLD = np.dtype([("row", "<u4"), ("mu", "<f4"), ("sigma", "<f4")])
"""What was last told before a row: exact, since beliefs hold these numbers as float32."""

NOTHING = np.empty(0, TOLD)


def last_told(header: Table) -> Table:
    """The rows of untold beliefs among (n,) headers before an update, and what was last told."""
    untold = header["untold"]
    if not untold.any():
        return NOTHING
    rows = np.flatnonzero(untold)
    found = np.empty(len(rows), TOLD)
    found["row"] = rows
    found["mu"], found["sigma"] = header["previous_mu"][rows], header["previous_sigma"][rows]
    return found


def of_first_rows(told: Table, which: Ints, turn: Ints) -> Table:
    """What `last_told` found of beliefs, by the first row of each; row i is of belief which[i], and
    has turn[i] rows of it before it."""
    if not len(told):
        return told
    first = np.flatnonzero((turn == 0) & np.isin(which, told["row"]))
    found: Table = told[np.searchsorted(told["row"], which[first])]
    found["row"] = first
    return found


def within(told: Table, rows: slice) -> Table:
    """What was told of these rows, counted from the first of them."""
    if not len(told):
        return told
    found: Table = told[(told["row"] >= rows.start) & (told["row"] < rows.stop)]
    found["row"] -= rows.start
    return found


def as_told(header: Table, told: Table) -> Table:
    """(n,) headers after an update, with what was last told in place of the previous values."""
    if not len(told):
        return header
    shown = header.copy()
    shown["previous_mu"][told["row"]] = told["mu"]
    shown["previous_sigma"][told["row"]] = told["sigma"]
    return shown


def noted(data: bytes, rows: int) -> Table | None:
    """What a call noted of `rows` rows; None if these bytes cannot be that."""
    if len(data) % TOLD.itemsize:
        return None
    told = np.frombuffer(data, TOLD)
    return told if not len(told) or int(told["row"].max()) < rows else None
