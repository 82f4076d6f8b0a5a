"""The names of the consumer groups, without the topic prefix before them."""

ESTIMATORS = "stream-rater-estimators"
"""The group that reads `round-completed`."""
UPDATERS = "stream-rater-updaters"
"""The group that reads `performance-estimated`."""
