"""Stage 2 in the stream: the parts of a shard become beliefs and events, each exactly once."""
