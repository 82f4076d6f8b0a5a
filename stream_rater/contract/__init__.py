"""What travels: the events, a Kafka record, CloudEvents headers and the trace context."""
