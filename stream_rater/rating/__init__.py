"""The rating mathematics: pure functions of numbers, with no clock, no I/O and no randomness.

`parameters` says what can be set, `model` what travels between the two stages, `performance` is
stage 1 (section 3.1 of the paper), `belief` stage 2 (sections 3.2 and 4), `sketch` bounds the
posterior's size, `factor` writes a part of it as a code, `record` lays out the whole in bytes,
`systems` puts them together behind one interface and `oracle` says the same slowly and readably.

"The paper" is A. Ebtekar and P. Liu, "An Elo-like System for Massive Multiplayer Competitions",
WWW 2021. Its symbols are kept: mu (rating), sigma (uncertainty), beta (spread of performances),
gamma (skill change between rounds), rho (inverse momentum), kappa (decay), delta (spread of a
player's performance as others see it).
"""
