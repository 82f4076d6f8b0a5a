"""What the server of forks does once: import the commands, and load their kernels."""

from stream_rater import cli, commands, inspect_command, rebuild_command, warm

COMMANDS = (commands, inspect_command, rebuild_command)
"""Modules that `cli` imports when a command is called."""

main = cli.main
warm.check()
