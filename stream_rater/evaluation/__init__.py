"""The laboratory: what is built on the sequential replay: verify, rebuild, evaluate and tune."""
