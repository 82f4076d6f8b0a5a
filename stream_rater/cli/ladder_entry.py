"""What to paste into the ladders file so that a ladder is rated by other parameters, as TOML."""

import json
import re
from typing import Any

import msgspec

from stream_rater.config import TEMPLATE, Ladders, Limits
from stream_rater.lab.present import system_of
from stream_rater.lab.tuning import without_defaults
from stream_rater.rating.parameters import RatingConfig

BARE = re.compile("[A-Za-z0-9_-]+")
"""A key that needs no quotes."""


def entry(
    ladders: Ladders, named: bool, ladder: str, rating: RatingConfig, offset: int
) -> str:  # fmt: skip
    """Tables that give a ladder this rating, from this offset on or from a later one that its
    changes allow; of another system, a ladder of its own.

    `named`: whether there is a ladders file. Without one the tables are a whole one.
    """
    known, template = ladders.ladders.get(ladder), ladders.ladders.get(TEMPLATE)
    present = ladders.find(ladder)
    assert present is not None
    if type(present.rating) is not type(rating):
        return _table(f"[ladders.{_key(f'{ladder}-{system_of(rating)}')}]", rating=_told(rating))
    if known is not None:
        at = max(offset, known.offsets[-1] + 1)
        return _table(f"[[ladders.{_key(ladder)}.changes]]", from_offset=at, rating=_told(rating))
    assert template is not None
    limits = {} if present.limits == Limits() else {"limits": msgspec.to_builtins(present.limits)}
    own = _table(f"[ladders.{_key(ladder)}]", from_offset=offset, rating=_told(rating), **limits)
    if named:
        return own
    return _table(f"[ladders.{_key(TEMPLATE)}]", rating=_told(template.rating)) + "\n" + own


def _told(rating: RatingConfig) -> dict[str, Any]:
    return without_defaults(rating)


def _table(heading: str, **values: Any) -> str:
    return "\n".join([heading, *(f"{name} = {_value(each)}" for name, each in values.items()), ""])


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """A value in one line: JSON's but for tables."""
    if isinstance(value, dict):
        return (
            f"{{ {', '.join(f'{_key(name)} = {_value(each)}' for name, each in value.items())} }}"
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
