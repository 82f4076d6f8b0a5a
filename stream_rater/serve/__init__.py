"""The read side: what is kept of `rating-changed`, and what is answered from it. Pure."""
