"""Runs commands of `stream-rater` one after the other in one process, because a short command
mostly takes the time of its start.

Standard input holds a JSON list of {"arguments", "variables"}; standard output gets one of
{"returncode", "stdout", "stderr"}.
"""

import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from stream_rater.cli import app


def ended(arguments: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
    """The outcome of one command, as that of a process."""
    os.environ.update(variables)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            app.main(list(arguments), prog_name="stream-rater")
        except SystemExit as end:
            code = end.code
    return {"returncode": code, "stdout": out.getvalue(), "stderr": err.getvalue()}


if __name__ == "__main__":
    json.dump([ended(**each) for each in json.load(sys.stdin)], sys.stdout)
