"""Columns of strings, players and times as arrays, and the compilation of kernels on them."""
