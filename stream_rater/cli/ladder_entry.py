"""What to paste into the ladders file so that a ladder is rated by other parameters, as TOML."""

import json
import re
from typing import Any

import msgspec

from stream_rater.config.ladders import TEMPLATE, Ladders, Limits
from stream_rater.evaluation.present import system_of
from stream_rater.evaluation.tuning import without_defaults
from stream_rater.rating.parameters import RatingConfig

BARE = re.compile("[A-Za-z0-9_-]+")
"""A key that needs no quotes."""


def entry(ladders: Ladders, ladder: str, rating: RatingConfig, offset: int, *, named: bool) -> str:
    """Tables that give a ladder this rating, from this offset on or from a later one that its
    changes allow; of another system, a ladder of its own.

    `named`: whether there is a ladders file. Without one the tables are a whole one.
    """
    present, known = ladders.find(ladder), ladders.ladders.get(ladder)
    assert present is not None
    told = without_defaults(rating)
    if type(present.rating) is not type(rating):
        return _table(f"[ladders.{_key(f'{ladder}-{system_of(rating)}')}]", rating=told)
    if known is not None:
        at = max(offset, known.offsets[-1] + 1)
        return _table(f"[[ladders.{_key(ladder)}.changes]]", from_offset=at, rating=told)
    limits = {} if present.limits == Limits() else {"limits": msgspec.to_builtins(present.limits)}
    own = _table(f"[ladders.{_key(ladder)}]", from_offset=offset, rating=told, **limits)
    if named:
        return own
    others = _table(f"[ladders.{_key(TEMPLATE)}]", rating=without_defaults(present.rating))
    return f"{others}\n{own}"


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
