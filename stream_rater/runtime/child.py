"""A standalone process that a program starts for itself: for its tests, or for the demo."""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

from stream_rater.config.errors import Failed
from stream_rater.config.settings import PREFIX

ANSWER_S = 60.0  # The longest time without an answer to a request.
END_S = 60.0  # The longest time that the process may take to end.

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Rater(NamedTuple):
    """A standalone process: its address, such as `http://127.0.0.1:43211`, and its data file."""

    url: str
    data: Path

    def ask(self, path: str, body: Any = None) -> Any:
        """The answer of the HTTP API, from JSON. A question with a body is a POST. Raises HTTPError
        if the status is not 2xx; the answer is its note."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with _DIRECT.open(request, timeout=ANSWER_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            error.add_note(error.read().decode())
            raise


@contextmanager
def standalone(listen: str = "127.0.0.1:0", **settings: object) -> Iterator[Rater]:
    """Run `stream-rater standalone --ephemeral` until the end of the block. It is ready at once.

    `listen` is HOST:PORT, and port 0 a free one. `settings` have their names in small letters, such
    as `ladders="ladders.toml"`; variables `STREAM_RATER_…` of this process do not count. Requests
    are not limited, unless `serve_rate` is given. Raises Failed, with the last line of its log, if
    the process fails, at the start or later.
    """
    environment = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
    for name, value in {"serve_rate": 0, **settings}.items():
        environment[PREFIX + name.upper()] = str(value)
    command = [sys.executable, "-m", "stream_rater", "standalone", "--ephemeral"]
    with tempfile.TemporaryFile("a+") as log, subprocess.Popen(
        [*command, "--listen", listen], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=log, text=True,
        start_new_session=True,  # a Ctrl-C reaches only this process, which ends the other one
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            if url := process.stdout.readline().strip():  # else it has ended
                log.seek(0)
                (begun,) = (line for line in log if '"event": "ephemeral"' in line)
                yield Rater(url, Path(json.loads(begun)["path"]))
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
            if process.wait():
                log.seek(0)
                *_, last = "it ended without a word", *log.read().splitlines()
                raise Failed(f"standalone: {last.removeprefix('stream-rater: ')}")
