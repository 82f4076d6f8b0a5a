"""Adapters to Kafka and Redis, and their twins in memory. Only this package imports the clients of
Kafka and Redis."""
