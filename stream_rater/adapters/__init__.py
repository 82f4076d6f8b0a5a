"""Adapters to Kafka, Redis and files. Only this package imports the clients of Kafka and Redis."""
