"""`make bench-serve`: how fast `serve` answers beside a worker at work."""
