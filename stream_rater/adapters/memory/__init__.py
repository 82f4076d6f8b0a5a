"""Kafka and Redis in memory, for the simulator, the demo and tests."""
