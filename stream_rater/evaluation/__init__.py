"""Measures how well rating systems predict rounds. Evaluates, compares and tunes them on files.

- `season` reads rounds, and `evaluation` rates and scores them.
- `measures` names the scores. `accuracy` defines those of pairs, with `ranks`, and `winners` those
  of the winner.
- `comparison` compares configurations, by `shared_scores` on what all of them can score, and with
  the intervals of `bootstrap`.
- `tuning` searches parameters in `spaces`, `fits` is the problem of tuning a system by its beliefs
  about `sides`, and `proposal` compares the result with the present parameters of a ladder.
"""
