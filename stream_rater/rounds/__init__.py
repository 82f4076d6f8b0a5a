"""From the bytes of `round-completed` to checked rounds as columns."""
