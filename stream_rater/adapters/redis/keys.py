"""The names of the keys in Redis."""

import zlib
from urllib.parse import unquote

from stream_rater.contract.events import escape


def position_key(shard: int) -> str:
    """The hash with a shard's position. The braces keep all keys of a shard in one Redis Cluster
    slot."""
    return f"{{{shard}}}:position"


def beliefs_prefix(shard: int) -> str:
    """The common prefix of the keys of a shard's belief hashes. The escaped ladder follows."""
    return f"{{{shard}}}:belief:"


CHECKPOINT_KEYS = "stream-rater:checkpoint*"
"""A pattern of all keys of checkpoints."""


def checkpoints_key(ladder: str) -> str:
    """The hash with the heads of a ladder's checkpoints."""
    return f"stream-rater:checkpoints:{escape(ladder)}"


def checkpoint_piece_key(ladder: str, name: str, number: int) -> str:
    """A piece of a checkpoint."""
    return f"stream-rater:checkpoint:{escape(ladder)}:{name}:{number}"


def belief_key(shard: int, ladder: str, player: bytes, buckets: int) -> str:
    """The hash that holds a player's belief: one of the `buckets` hashes of a ladder in a shard."""
    return f"{beliefs_prefix(shard)}{escape(ladder)}:{zlib.crc32(player) % buckets}"


def ladder_of(key: str) -> str:
    """The ladder of a hash of beliefs."""
    return unquote(key.split(":")[2])
