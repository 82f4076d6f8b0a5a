"""The kernels of all rating systems except Elo-MMR (`rating.elo_mmr`): stage 1 of each system, and
the sums and tables that several systems share.

A system that knows only rounds without teams has a function `rate` of one round, which
`memoryless.rate_each_round` calls for each round of a wave:

    place (n,)       as in Wave: in order, unfinished entries last
    mu, sigma (n,)   before the round
    weight           of the round
    returns (n, 3): performance, new mu, new sigma

The other systems rate a whole wave in one call (`rate_rounds`). Formulas and symbols are those of
the paper that each module names.
"""
