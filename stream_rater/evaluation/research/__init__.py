"""The experiments of the papers, and tables of all systems on real games."""
