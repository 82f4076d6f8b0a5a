"""Injects faults on real servers, and checks that every rating is there once, as by a replay."""
