"""The index that `serve` keeps in Redis: who writes it, who reads it."""
