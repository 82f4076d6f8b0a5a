"""Measures how well rating systems predict rounds. Evaluates, compares and tunes them on files.

- `season` reads rounds, and `evaluation` rates and scores them.
- `measures` names the scores. `accuracy` defines those of pairs, with `ranks`, and `winners` those
  of the winner.
- `comparison` compares configurations, by `shared_scores` on what all of them can score, and with
  the intervals of `bootstrap`.
- `tuning` searches parameters in `spaces`. `proposal` compares tuned parameters with the present
  ones of a ladder.
- `fits` is the problem of tuning one of the `tuned_systems`, by its beliefs about `sides`.
"""
