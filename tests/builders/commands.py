"""Commands that run in the test's process."""

import io
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from stream_rater.cli import app


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def run(*words: object) -> Result:
    return CliRunner().invoke(app.main, [str(word) for word in words])


def done(*words: object) -> str:
    """The output of a command that succeeds."""
    result = run(*words)
    assert result.exit_code == 0, result.output or repr(result.exception)
    return result.stdout


def failed(*words: object) -> str:
    """The error message of a command that fails, which is one line."""
    result = run(*words)
    assert result.exit_code in (1, 2), result.output
    (line,) = [each for each in result.stderr.splitlines() if each.startswith("stream-rater: ")]
    return line.removeprefix("stream-rater: ")


def piped(given: str, *words: object) -> str:
    """The output of a command that reads `given` on its standard input, in a process of its own."""
    command = [sys.executable, "-m", "stream_rater", *map(str, words)]
    return subprocess.run(command, input=given, text=True, capture_output=True, check=True).stdout


def as_file(path: Path, lines: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def submitted(path: Path, lines: Iterable[Any]) -> Result:
    """The outcome of submitting lines to a data file."""
    return run("submit", as_file(path.with_name("rounds.jsonl"), lines), "--data", path)


def execute(path: Path, sql: str, *values: object) -> list[Any]:
    """Run a statement on a data file, as a foreign program does."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(sql, values).fetchall()
