"""What can be set: ladders and the service's settings, and the errors of a configuration."""
