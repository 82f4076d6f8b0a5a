"""The rating systems. A file has one of them, or a few that belong together.

A system has its parameters, stage 1, stage 2 if the system keeps a history, the chances of a
win, and the search space of `tune`. `common` has what systems share and the list of what each must
have. `rating.parameters` lists all systems.

These files import no kernel before a round is rated, because numba takes long to import and a
process that only reads a configuration does not need it (`common.Later`).
"""
