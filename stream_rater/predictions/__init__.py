"""What the ratings before a round say about its result: pure functions of numbers."""
