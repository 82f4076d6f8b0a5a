"""What an operator runs beside the service: rebuild, verify, erase, checkpoint."""
