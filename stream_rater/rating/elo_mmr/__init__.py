"""Computes Elo-MMR: the performances of stage 1 and the beliefs of stage 2."""
