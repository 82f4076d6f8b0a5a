"""Elo-MMR: performances of stage 1, beliefs of stage 2, and a readable oracle."""
