"""The laboratory: offline replay of rounds, and what is built on it: verify, rebuild, evaluate and
tune."""
