"""The read side: an index of the events in `rating-changed`, and the API that answers from it."""
