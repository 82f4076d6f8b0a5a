"""Requests that Schemathesis makes up from the API's own description: whatever is asked, an answer
is as described, and no mistake of ours."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from local.servers import Addresses
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.serve.openapi import document
from stream_rater.serve.routes import OPERATIONS
from tests import real
from tests.builders.lines import a_message, a_round
from tests.builders.serves import ServeThread, serves_here
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import Finished, produce

CHECKS = (
    not_a_server_error, status_code_conformance, content_type_conformance,
    response_schema_conformance,
)  # fmt: skip
FEW, MANY = 5, 30
"""Examples of each operation."""
ASKED = [each.name for each in OPERATIONS if each.answer is not None]
"""The stream of changes does not end: another test follows it."""
PATHS = {"ladder": st.sampled_from(["eu", "eu", "eu", "asia"]),
         "player": st.sampled_from(["p1", "new", "eve", "a/b"]),
         "season": st.sampled_from(["0", "1", "x"]),
         "round_id": st.sampled_from(["r0", "made-up", "a/b"])}  # fmt: skip
TOKEN = "schema"

SCHEMA = schemathesis.openapi.from_dict(document("0", token=False))


@pytest.fixture(scope="module")
def api(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeThread]:
    """One beside a worker, with three listed players and a provisional one, and no limit of
    rate."""
    log = tmp_path_factory.mktemp("serve") / "worker.log"
    with real.a_place(addresses) as at, serves_here() as start, ExitStack() as stack:
        stack.enter_context(closing(WorkerProcess(at, log, forked=True)))
        names = ["p0", "p1", "p2", "new"]
        played = [
            a_round(number, *names[: 4 if number == 0 else 3], ladder="eu") for number in range(6)
        ]
        Admin(at).create_topics()
        produce(at, [a_message(each) for each in played])
        wait_until(Finished(at), "all is rated")
        yield start(msgspec.structs.replace(at, serve_rate=0.0, serve_write_token=TOKEN))


@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_answers_are_as_described(api: ServeThread, examples: int) -> None:
    """Of requests that the description allows, and of others."""
    wrong: dict[str, Exception] = {}
    for name in ASKED:
        try:
            ask_for(api, name, examples)
        except Exception as error:
            wrong[name] = error
    assert wrong == {}


def ask_for(api: ServeThread, name: str, examples: int) -> None:
    """Ask by so many made-up requests of an operation."""
    operation = SCHEMA.find_operation_by_id(name)
    made: Any = st.one_of(*(operation.as_strategy(mode) for mode in schemathesis.GenerationMode))

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(made, st.fixed_dictionaries(PATHS))
    def answered(case: schemathesis.Case, path: dict[str, str]) -> None:
        case.path_parameters = {name: path[name] for name in case.path_parameters or {}}
        query = case.query or {}
        waits = not query.keys().isdisjoint({"wait", "min_offset"})
        if waits and str(query.get("wait", 1)).isdecimal():
            query["wait"] = 1  # made-up offsets and rounds are mostly waited for in vain
        headers = {"Authorization": f"Bearer {TOKEN}"}
        response = case.call(base_url=api.url, headers=headers)
        in_vain = response.status_code == 503 and response.json()["code"] == "not-yet"
        checks = [each for each in CHECKS if not (in_vain and each is not_a_server_error)]
        case.validate_response(response, checks=checks)

    answered()
