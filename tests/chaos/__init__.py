"""Faults on real servers: is every rating there once, and equal to a replay?"""
