"""The index that `serve` stores in Redis: its writer, its follower and its reader."""
