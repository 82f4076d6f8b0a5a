"""The systems that the Elo-MMR paper compares with: a file with the kernel of each, for rounds
without teams, and `memoryless`, which rates teams by them.

Their parameters are in `systems.historic`. A module is loaded when a ladder that names its system
rates a round, so other ladders neither import nor compile any of them. `rate` of each computes one
round:

    place (n,)       as in Wave: in order, unfinished entries last
    mu, sigma (n,)   before the round
    weight           of the round
    returns (n, 3): performance, new mu, new sigma
"""
