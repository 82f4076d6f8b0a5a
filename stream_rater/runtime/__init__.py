"""A worker process: start, health, metrics, logs and shutdown."""
