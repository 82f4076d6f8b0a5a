"""The kernels of all rating systems except Elo-MMR (`rating.elo_mmr`): stage 1 of each system, and
the sums and tables that several systems share.

A system rates a whole wave in one call (`rate_rounds`). Formulas and symbols are those of the paper
that each module names.
"""
