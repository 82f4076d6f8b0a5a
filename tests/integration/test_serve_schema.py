"""Requests that Schemathesis makes up from the API's own description: whatever is asked, an answer
is as described, and no mistake of ours."""

from collections.abc import Iterator

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
from stream_rater.serving.openapi import document
from stream_rater.serving.operations import OPERATIONS
from tests import real
from tests.integration.processes import WorkerProcess
from tests.integration.serving import serves, tell_of_a_few

CHECKS = (
    not_a_server_error, status_code_conformance, content_type_conformance,
    response_schema_conformance,
)  # fmt: skip
EXAMPLES = 60
ASKED = [each.name for each in OPERATIONS if each.answer is not None]
"""The stream of changes does not end: another test follows it."""
PATHS = {"ladder": st.sampled_from(["eu", "eu", "eu", "asia"]),
         "player": st.sampled_from(["p1", "new", "eve", "a/b"])}  # fmt: skip

SCHEMA = schemathesis.openapi.from_dict(document("0", token=False))


@pytest.fixture(scope="module")
def api(addresses: Addresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """One with a few players, and no limit of rate."""
    with real.a_place(addresses) as at, serves(tmp_path_factory.mktemp("serve")) as start:
        tell_of_a_few(at)
        yield start(msgspec.structs.replace(at, serve_rate=0.0))


@pytest.mark.parametrize("name", ASKED)
def test_answers_are_as_described(api: WorkerProcess, name: str) -> None:
    """Of requests that the description allows, and of others."""
    operation = SCHEMA.find_operation_by_id(name)
    made = st.one_of(*(operation.as_strategy(mode) for mode in schemathesis.GenerationMode))

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(made, st.fixed_dictionaries(PATHS))
    def answered(case: schemathesis.Case, path: dict[str, str]) -> None:
        case.path_parameters = {name: path[name] for name in case.path_parameters or {}}
        response = case.call(base_url=api.url)
        case.validate_response(response, checks=list(CHECKS))

    answered()
