"""Where the world is: Kafka, Redis and their stand-ins in memory. Only it imports them."""
