"""The commands of `stream-rater`."""
