"""The laboratory: the experiments of the papers, and tables of all systems on real games.

`make evidence` runs it. `peers` are other packages, and `forward` plays a game as all are compared.
"""
