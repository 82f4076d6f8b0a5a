"""Fuzzes the decoder: whatever the bytes, Standings or Invalid, soon, in little memory. Hypothesis
draws recipes, each of which makes many inputs. A short run is a test, `make soak` a long one."""
