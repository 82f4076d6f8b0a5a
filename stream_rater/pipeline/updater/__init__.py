"""Stage 2 in the stream: parts of a shard become beliefs and events, each exactly once."""
