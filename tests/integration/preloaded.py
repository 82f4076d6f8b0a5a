"""What the server of forks does once: import the commands, and load their kernels."""

from stream_rater.cli import app
from stream_rater.operations import inspect, rebuild, submit, verify
from stream_rater.runtime import selfcheck, service

COMMANDS = (inspect, rebuild, service, submit, verify)
"""Modules that `app` imports when a command is called."""

main = app.main
selfcheck.check()
