"""What the server of forks does once: import the commands, and load their kernels."""

from stream_rater.cli import app, commands, inspect
from stream_rater.operations import rebuild
from stream_rater.runtime import selfcheck

COMMANDS = (commands, inspect, rebuild)
"""Modules that `app` imports when a command is called."""

main = app.main
selfcheck.check()
