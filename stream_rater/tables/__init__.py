"""Reads tables of rounds or of ratings, in files or in memory, and makes events of their rows."""
