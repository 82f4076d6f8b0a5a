"""Fuzzes the decoder: whatever the bytes, Standings or Invalid, soon, and in little memory.

    recipes ──▶ bytes ──▶ outcome          one recipe, drawn by Hypothesis, makes many inputs

A short run is a test. `make soak` runs it at length.
"""
