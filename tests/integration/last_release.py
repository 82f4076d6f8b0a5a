"""stream-rater as its last release was: it sends parts of older versions, and refuses ours."""

from collections.abc import Sequence
from typing import Any

from stream_rater.cli import app
from stream_rater.columns.arrays import Ints
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.pipeline.parts.decoder import PartView
from stream_rater.pipeline.parts.schema import Part, UnknownPart
from tests.builders.machines import as_last

_read = decoder.read


def messages(
    part: Part, order: Ints, by_shard: Sequence[tuple[int, slice]], *_: object
) -> list[tuple[int, bytes]]:  # fmt: skip
    return [(shard, as_last(part.take(order[where]))) for shard, where in by_shard]


def read(data: bytes, *arguments: Any, **more: Any) -> PartView:
    if schema.version_of(data) == schema.VERSION:
        raise UnknownPart("part: Expected `int` <= 1 - at `$[0]`")
    return _read(data, *arguments, **more)


def read_all(messages: Sequence[bytes], *_: Any) -> list[PartView | None]:
    return [None] * len(messages)


for module, name, replacement in (
    (schema, "messages", messages), (decoder, "read", read), (decoder, "read_all", read_all),
):  # fmt: skip
    setattr(module, name, replacement)

if __name__ == "__main__":
    app.main()
