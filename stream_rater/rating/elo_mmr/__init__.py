"""Computes Elo-MMR: the performances of stage 1, the beliefs of stage 2, and a readable oracle."""
