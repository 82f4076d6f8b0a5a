"""Fuzzes the decoder: whatever the bytes, Standings or Invalid, soon, and in little memory.

    recipes ──▶ bytes ──▶ outcome          one recipe, drawn by Hypothesis, makes many inputs

`python -m tests.fuzz --inputs N --minutes M` (a part of `make soak`); a short run is a test.
"""
