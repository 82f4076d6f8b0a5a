"""The laboratory, built on the sequential replay: verify, rebuild, evaluate and tune."""
