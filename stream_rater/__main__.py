"""`python -m stream_rater`."""

from stream_rater.cli.app import main

main()
