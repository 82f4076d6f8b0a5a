"""Corrections in the stream: queued, replayed from a checkpoint, sent as parts."""
