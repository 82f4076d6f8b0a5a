"""Makes and reads the cursors of the leaderboard's pages.

A cursor is opaque to clients, and stays valid while ranks change. It encodes the place after one
row: the row's rating and player. The next page begins with the player who is after this place at
that time, whatever happened to the row. So a player whose place does not change is neither omitted
nor shown twice.
"""

import base64
import binascii
import math

import msgspec

from stream_rater.contract.events import MAX_ID_BYTES
from stream_rater.index.answers import AfterRow
from stream_rater.serve.problems import Refused

VERSION = 1
MOST_CHARACTERS = 256


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    version: int
    rating: float
    player: str


_decode = msgspec.msgpack.Decoder(_Cursor).decode


def encode_cursor(place: AfterRow) -> str:
    """Encode a place as a cursor."""
    packed = msgspec.msgpack.encode(_Cursor(VERSION, place.rating, place.player))
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def decode_cursor(cursor: str) -> AfterRow:
    """Decode a cursor to its place. Raises Refused if the text is not a cursor."""
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
        raise Refused(
            "bad-cursor", "take `next` of the page before as it is, or leave `cursor` out",
            "query.cursor",
        ) from None  # fmt: skip
    return AfterRow(found.rating, found.player)
