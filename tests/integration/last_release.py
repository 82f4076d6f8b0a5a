"""stream-rater as its last release was: its parts know no trace, and it sends none on; nor does it
know the marks of rebuilds.

`python -m tests.integration.last_release run ...`
"""

from dataclasses import replace
from typing import Any

import msgspec

from stream_rater import cli
from stream_rater.pipeline import parts
from stream_rater.pipeline.parts import Part, Rebuilt, UnknownPart
from tests.last_parts import as_last

_encode, _decode = parts.encode, parts.decode


def encode(part: Part) -> bytes:
    """Without traces."""
    return as_last(_encode(part))


def decode(data: bytes, *arguments: Any, **more: Any) -> Part:
    """As if there were none."""
    try:
        part = _decode(data, *arguments, **more)
    except Rebuilt:
        raise UnknownPart("part: Expected `int` <= 1 - at `$[0]`") from None
    return replace(part, rounds=[msgspec.structs.replace(each, trace=None) for each in part.rounds])


parts.encode, parts.decode = encode, decode

if __name__ == "__main__":
    cli.main()
