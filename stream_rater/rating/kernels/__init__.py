"""The kernels of the rating systems but Elo-MMR's (`rating.elo_mmr`): stage 1 of each, and sums and
tables that several share.

A system that rates each round by itself (`memoryless.rate_each_round`) has a function `rate`:

    place (n,)   as in Wave, in order, unfinished last
    mu, sigma (n,)   before the round
    weight       of the round
    returns (n, 3): performance, new mu, new sigma

The others take a whole wave (`rate_rounds`). Formulas and symbols are those of the paper that each
module names.
"""
