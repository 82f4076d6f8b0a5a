"""The contract on the wire: events, Kafka records, CloudEvents headers and the trace context."""
