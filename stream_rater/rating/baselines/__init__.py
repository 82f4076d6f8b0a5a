"""The systems that Elo-MMR is compared with, and rates as well: all of them memoryless.

A memoryless system keeps mu and sigma and no history, so stage 1 finds the new rating at once and
stage 2 only writes it down. Each module has one function `rate`, for one round:

    place (n,)   as in Wave, in order, unfinished last
    mu, sigma (n,)   before the round
    weight       of the round
    returns (n, 3): performance, new mu, new sigma

Formulas and symbols are those of the papers that each module names.
"""
