"""stream-rater as in its last release: it sends no traces in parts, and knows no marks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from stream_rater.cli import app
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.pipeline.parts.decoder import PartView
from stream_rater.pipeline.parts.schema import Part, RebuildMark, UnknownPart
from tests.builders.machines import as_last

_encode, _decode = schema.encode_pieces, schema.decode


def encode(*arguments: Any) -> list[bytes]:
    return list(map(as_last, _encode(*arguments)))


def decode(data: bytes, *arguments: Any, **more: Any) -> Part:
    try:
        part = _decode(data, *arguments, **more)
    except RebuildMark:
        raise UnknownPart("part: Expected `int` <= 1 - at `$[0]`") from None
    return replace(part, rounds=[msgspec.structs.replace(each, trace=None) for each in part.rounds])


def read_all(messages: Sequence[bytes], *_: Any) -> list[PartView | None]:
    return [None] * len(messages)


for module, name, replacement in (
    (schema, "encode_pieces", encode), (schema, "decode", decode), (decoder, "read_all", read_all),
):  # fmt: skip
    setattr(module, name, replacement)

if __name__ == "__main__":
    app.main()
