"""Stage 1 in the stream: the estimator accepts rounds, groups them in waves, and sends parts."""
