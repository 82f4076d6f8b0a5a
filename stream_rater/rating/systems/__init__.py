"""The rating systems, a file each (Kerby's four share one): what can be set, stage 1, stage 2 if
the system keeps a history, the model of a match, and what `tune` searches.

A system is the struct of its parameters. `common` has what systems share, and what a system must
say of itself; `rating.parameters` lists all systems. These files import no kernel before a round is
rated, because a process that only reads a configuration must not wait for numba.
"""
