"""Kafka and Redis, and their stand-ins in memory. Only this package imports their clients."""
