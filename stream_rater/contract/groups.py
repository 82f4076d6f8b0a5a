"""Names of the consumer groups, behind the topic prefix."""

ESTIMATORS = "stream-rater-estimators"
"""Reads round-completed."""
UPDATERS = "stream-rater-updaters"
"""Reads performance-estimated."""
