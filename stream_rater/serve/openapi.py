"""Makes the OpenAPI 3.1 document from the table of operations, the types of the bodies, and the
examples, which are real answers (`deploy/tools/api_examples.py`)."""

import re
from importlib import resources
from typing import Any

import msgspec

from stream_rater.contract.errors import REJECTIONS
from stream_rater.serve.bodies import Problem
from stream_rater.serve.problems import KINDS, MEDIA_TYPE, REFUSED_RECORD
from stream_rater.serve.routes import COMMON, EVENT_STREAM, JSON, OPERATIONS, Number, Operation

REFERENCE = "#/components/schemas/{name}"
EXAMPLES: dict[str, dict[str, Any]] = msgspec.json.decode(
    resources.files("stream_rater").joinpath("serve", "examples.json").read_bytes()
)
"""By operation, `parameters`, `body` and `answer` of an example."""


def document(version: str, *, token: bool, write_token: bool = True) -> dict[str, Any]:
    """The OpenAPI document. `token`: whether all requests need one, or (`write_token`) to write."""
    types = [each for one in OPERATIONS for each in (one.answer, one.body) if each is not None]
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=REFERENCE)
    _simplify(components)
    by_type = dict(zip([*types, Problem], schemas, strict=True))
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        made = _describe_operation(operation, by_type, token=write_token and operation.writes)
        paths.setdefault(operation.path, {})[operation.method.lower()] = made
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "stream-rater", "version": version,
            "description": "Ratings, and the rounds that change them.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip
    if token:
        found["security"] = [{"token": []}]
    return found


def _simplify(part: Any) -> None:
    """Change schemas in place to what generators of clients know: tuples, each of one type, become
    arrays. Defaults are said in words, since some generators take a field with one for required."""
    if isinstance(part, list):
        for each in part:
            _simplify(each)
    if not isinstance(part, dict):
        return
    if first := part.pop("prefixItems", None):
        part["items"] = first[0]
    for field in part.get("properties", {}).values():
        if (default := field.pop("default", None)) not in (None, [], {}):
            words = (
                field.get("description", ""),
                f"By default {msgspec.json.encode(default).decode()}.",
            )
            field["description"] = " ".join(filter(None, words))
    for each in part.values():
        _simplify(each)


def _describe_operation(operation: Operation, by_type: dict[type, Any], *, token: bool) -> Any:
    example = EXAMPLES.get(operation.name, {})
    found: dict[str, Any] = {
        "operationId": operation.name, "summary": operation.description,
        "parameters": [*_in_path(operation), *_in_query(operation)],
        "responses": {
            str(operation.success): _answer(operation, by_type),
            **_problems(operation, by_type),
        },
    }  # fmt: skip
    if token:
        found["security"] = [{"token": []}]
    for parameter in found["parameters"]:
        if (value := example.get("parameters", {}).get(parameter["name"])) is not None:
            parameter["example"] = value
    if operation.produces == EVENT_STREAM:
        found["parameters"].append(
            {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}}
        )
    if operation.body is not None:
        schema = by_type[operation.body]
        # A body of lines is no JSON text, so it has no schema of JSON.
        content: dict[str, Any] = {
            kind: {"schema": schema if kind == JSON else {"type": "string"}}
            for kind in operation.media_types
        }
        content[JSON]["example"] = example["body"]
        found["requestBody"] = {"required": True, "content": content}
    return found


def _in_path(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]


def _in_query(operation: Operation) -> list[dict[str, Any]]:
    found = []
    for name, each in operation.query.items():
        schema: dict[str, Any] = {"type": "string"}
        if isinstance(each, Number):
            schema = {"type": "integer", "minimum": each.least, "maximum": each.most}
            if each.default is not None:
                schema["default"] = each.default
        found.append(
            {"name": name, "in": "query", "description": each.description, "schema": schema}
        )
    return found


def _answer(operation: Operation, by_type: dict[type, Any]) -> dict[str, Any]:
    if operation.answer is None:
        content: dict[str, Any] = {operation.produces: {"schema": {"type": "string"}}}
    else:
        example = EXAMPLES[operation.name]["answer"]
        content = {JSON: {"schema": by_type[operation.answer], "example": example}}
    found: dict[str, Any] = {"description": operation.description, "content": content}
    if operation.name == "send-round":
        where = "Where the state of the round is"
        found["headers"] = {"Location": {"description": where, "schema": {"type": "string"}}}
    return found


def _problems(operation: Operation, by_type: dict[type, Any]) -> dict[str, Any]:
    codes: dict[str, list[str]] = {}
    for code in (*COMMON, *operation.codes):
        codes.setdefault(str(KINDS[code].status), []).append(code)
    if operation.writes:
        codes[str(REFUSED_RECORD.status)] += REJECTIONS
    return {
        status: {
            "description": ", ".join(f"`{each}`" for each in names),
            "content": {MEDIA_TYPE: {"schema": by_type[Problem]}},
        }
        for status, names in sorted(codes.items())
    }
