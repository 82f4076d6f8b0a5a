"""`python -m stream_rater`."""

from stream_rater.cli import main

main()
