"""Names of the keys in Redis."""

import zlib

from stream_rater.contract.events import escape


def position_key(shard: int) -> str:
    """The hash that holds a shard's position. The braces keep a shard in one Redis Cluster slot."""
    return f"{{{shard}}}:position"


def beliefs_prefix(shard: int) -> str:
    """How the keys begin of all hashes with beliefs in this shard; the ladder, escaped, follows."""
    return f"{{{shard}}}:belief:"


def belief_key(shard: int, ladder: str, player: bytes, buckets: int) -> str:
    """The hash, of a ladder's `buckets` in this shard, that holds a player's belief."""
    return f"{beliefs_prefix(shard)}{escape(ladder)}:{zlib.crc32(player) % buckets}"
