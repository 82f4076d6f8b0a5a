"""Corrections in the stream: they are queued, replayed from a checkpoint, and sent as parts."""
