"""The mathematics of the rating systems: pure functions of numbers, with no clock, no I/O and no
randomness.

`parameters` lists the systems and their parameters. `model` defines the data of the two stages.
`performance` is stage 1 (section 3.1 of the paper), `belief` is stage 2 (sections 3.2 and 4).
`sketch` bounds the size of the posterior, `factor` encodes one of its factors, `record` encodes a
whole belief. `systems` has the rating systems, `kernels` has their computations, and `stages`
offers all of them behind one interface. The tests have slow and readable
oracles beside them.

"The paper" is A. Ebtekar and P. Liu, "An Elo-like System for Massive Multiplayer Competitions", WWW
2021. Its symbols are kept: mu (rating), sigma (uncertainty), beta (spread of performances), gamma
(skill change between rounds), rho (inverse momentum), kappa (decay), delta (spread of a player's
performance as others see it).
"""
