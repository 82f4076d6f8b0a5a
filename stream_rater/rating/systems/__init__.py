"""The memoryless rating systems, which Elo-MMR is compared with and which can rate ladders as well.

A memoryless system keeps mu and sigma and no history, so stage 1 computes the new rating at once
and stage 2 only stores it. A system that rates each round by itself has a function `rate`:

    place (n,)   as in Wave, in order, unfinished last
    mu, sigma (n,)   before the round
    weight       of the round
    returns (n, 3): performance, new mu, new sigma

Formulas and symbols are those of the paper that each module names.
"""
