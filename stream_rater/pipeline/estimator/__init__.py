"""Stage 1 in the stream: rounds are accepted, grouped in waves, and sent as parts."""
