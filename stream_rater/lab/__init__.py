"""Offline tools: replay, verify, rebuild, evaluate and tune."""
