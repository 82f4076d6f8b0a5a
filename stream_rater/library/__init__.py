"""Rates rounds in Python, without any server: what `import stream_rater` gives.

`ladder` is what people hold, and light to import. `rater` keeps a log of all that was rated, and
its replay, the very one of the offline commands; so the bits are the stream's. A round that is
given as Python values becomes a message of `round-completed` (`messages`) and takes the road of all
others. `answers` puts what the replay says into columns (`results`).
"""
