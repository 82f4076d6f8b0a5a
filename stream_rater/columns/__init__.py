"""Columns of strings, players and times as arrays, and how kernels on them are compiled."""
