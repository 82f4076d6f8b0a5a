"""Fuzzes the decoder: whatever the bytes, it must return Standings or raise Invalid, soon and in
little memory. Hypothesis draws recipes, each of which makes many inputs. `make soak` runs long."""
