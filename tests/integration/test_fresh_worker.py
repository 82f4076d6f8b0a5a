"""After `make python` nothing compiles in workers and `serve`, on Kafka and Redis."""

from pathlib import Path

import msgspec
import pytest

from local.servers import Addresses
from tests.builders.lines import a_round
from tests.integration.processes import Start, commands, variables_of
from tests.integration.serving import Serve, ask
from tests.real import SettingsFactory, a_place
from tests.unit.test_fresh_setup import (
    LADDERS_FILE,
    ON_SERVERS,
    SETTINGS,
    Note,
    cache,
    note,
    run,
)

pytestmark = pytest.mark.slow

__all__ = ["cache", "note"]


def test_workers(
    note: Note, settings: SettingsFactory, worker_process: Start, serve_process: Serve,
    addresses: Addresses, tmp_path: Path,
) -> None:  # fmt: skip
    """From their first start to a rebuild, one with both roles and one that estimates alone."""
    at = settings(ladders=str(LADDERS_FILE))
    variables = variables_of(at)
    worker = worker_process(at, forked=False)
    serve = serve_process(msgspec.structs.replace(at, serve="127.0.0.1:0"))
    for words in ON_SERVERS[2:8]:
        run("-m", "stream_rater", *words.split(), **variables)
        note(words)
    assert ask(serve, "/v1/ladders/season/players/p1/explain").status == 200
    note("an answer")
    for process in (serve, worker):
        process.terminate()
        assert process.wait() == 0
    with commands(tmp_path, "standalone", str(tmp_path / "a.db")) as start:
        alone = start(SETTINGS)
        ask(alone, "/v1/ladders/season/rounds", a_round(1, "ann", "bo", ladder="season"))
        assert ask(alone, "/v1/ladders/season/rounds/r1?wait=30").status == 200
    with a_place(addresses) as place:
        to = variables_of(msgspec.structs.replace(place, ladders=str(LADDERS_FILE)))
        for words, where in zip(ON_SERVERS[8:], (variables, variables, to), strict=True):
            run("-m", "stream_rater", *words.split(), **where)
            note(words)
    worker_process(at, role="estimator", forked=False)
    note("an estimator")
