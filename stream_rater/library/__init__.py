"""Rates rounds in Python, without any server. This package is the API of `import stream_rater`.

`ladder` has the public class, and imports quickly. `rater` stores a log of all rated rounds and
replays it with the code of the offline commands, so the results are those of the service, bit for
bit. `messages` turns a round that is given as Python values into a message of `round-completed`,
which is then handled like any other. `answers` builds the results (`results`) from the replay. All
results with rows are `tables`. `comparing` says how well parameters predict, and `plots` draws.
"""
