"""Injects faults on real servers, and checks that every rating is there once, as in a replay."""
