"""Cursors of the leaderboard: opaque to clients, and stable while ranks move.

A cursor is the place behind one row: its rating and its player. The next page begins with whoever
is behind this place now, whatever became of the row. So nobody who stays in place is left out or
shown twice.
"""

import base64
import binascii
import math
from typing import NamedTuple

import msgspec

from stream_rater.contract.events import MAX_ID_BYTES

VERSION = 1
MOST_CHARACTERS = 256


class BadCursor(ValueError):
    """No cursor that this API has given."""


class Place(NamedTuple):
    """Right behind the row of this player with this rating: greater ratings come first, then ids in
    order of their bytes."""

    rating: float
    player: str


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    version: int
    rating: float
    player: str


_decode = msgspec.msgpack.Decoder(_Cursor).decode


def written(place: Place) -> str:
    """The cursor of a place."""
    packed = msgspec.msgpack.encode(_Cursor(VERSION, place.rating, place.player))
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def read(cursor: str) -> Place:
    """The place of a cursor. Raises BadCursor."""
    try:
        if len(cursor) > MOST_CHARACTERS:
            raise ValueError
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found = _decode(data)
        if found.version != VERSION or not math.isfinite(found.rating):
            raise ValueError
        if len(found.player.encode()) > MAX_ID_BYTES:
            raise ValueError
    except (ValueError, binascii.Error, msgspec.DecodeError, UnicodeError):
        raise BadCursor("take `next` of the page before as it is, or leave `cursor` out") from None
    return Place(found.rating, found.player)
