"""The records of `performance-estimated`: how they are encoded and decoded."""
