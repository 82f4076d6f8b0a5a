"""stream-rater as its last release was: its parts know no trace, and it sends none on; nor does it
know the marks of rebuilds.

`python -m tests.integration.last_release run ...`
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from stream_rater.cli import app
from stream_rater.parts import decoder, schema
from stream_rater.parts.decoder import Piece
from stream_rater.parts.schema import Part, Rebuilt, UnknownPart
from tests.last_parts import as_last

_encode, _decode = schema.encode_pieces, schema.decode


def encode(*arguments: Any) -> list[bytes]:
    """Without traces."""
    return list(map(as_last, _encode(*arguments)))


def decode(data: bytes, *arguments: Any, **more: Any) -> Part:
    """As if there were none."""
    try:
        part = _decode(data, *arguments, **more)
    except Rebuilt:
        raise UnknownPart("part: Expected `int` <= 1 - at `$[0]`") from None
    return replace(part, rounds=[msgspec.structs.replace(each, trace=None) for each in part.rounds])


def read_all(messages: Sequence[bytes], *_: Any) -> list[Piece | None]:
    """Each by itself."""
    return [None] * len(messages)


schema.encode_pieces, schema.decode = encode, decode
decoder.read_all = read_all

if __name__ == "__main__":
    app.main()
