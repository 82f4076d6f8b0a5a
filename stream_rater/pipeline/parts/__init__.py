"""The records of `performance-estimated`: how they are written and read."""
