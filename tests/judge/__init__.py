"""A judge of whole runs that shares no code with the service: it knows the documents alone."""
