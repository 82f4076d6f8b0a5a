"""Kafka: the consumer, the producers, plain readers, and the topics with their rules."""
