"""Decodes the records of `round-completed` and validates their rounds, as columns."""
