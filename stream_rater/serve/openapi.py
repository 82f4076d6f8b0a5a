"""Makes the OpenAPI document from the table of operations, the types of the bodies, and the
examples, which are real answers (`deploy/tools/api_examples.py`). It is one of OpenAPI 3.0, which
more generators of clients read than 3.1."""

import re
from importlib import resources
from typing import Any

import msgspec

from stream_rater.contract.errors import REJECTIONS
from stream_rater.serve.bodies import CorrectionReport, Problem
from stream_rater.serve.problems import KINDS, MEDIA_TYPE, REFUSED_RECORD
from stream_rater.serve.routes import COMMON, EVENT_STREAM, JSON, OPERATIONS, Number, Operation

REFERENCE = "#/components/schemas/{name}"
LICENSE = {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}
NULL = {"type": "null"}
EXAMPLES: dict[str, dict[str, Any]] = msgspec.json.decode(
    resources.files("stream_rater").joinpath("serve", "examples.json").read_bytes()
)
"""By operation, `parameters`, `body` and `answer` of an example."""
FORMATS = {"number": "double", "integer": "int64"}
"""The formats of numbers, by type. Without one, some generators take fewer bits."""


def document(version: str, *, token: bool, write_token: bool = True) -> dict[str, Any]:
    """The OpenAPI document. `token`: whether all requests need one, or (`write_token`) to write."""
    types = [each for one in OPERATIONS for each in (one.answer, one.body) if each is not None]
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=REFERENCE)
    by_type = dict(zip([*types, Problem], schemas, strict=True))
    components["CorrectionReport"] = by_type[CorrectionReport]
    by_type[CorrectionReport] = {"$ref": REFERENCE.format(name="CorrectionReport")}
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        needs_token = token or (write_token and operation.writes)
        made = _describe_operation(operation, by_type, token=needs_token)
        paths.setdefault(operation.path, {})[operation.method.lower()] = made
    found: dict[str, Any] = {
        "openapi": "3.0.3",
        "info": {
            "title": "stream-rater", "version": version, "license": LICENSE,
            "description": "Ratings, and the rounds that change them.",
        },
        "servers": [{"url": "/", "description": "The process that has this document"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }  # fmt: skip
    _simplify(found, components)
    return found


def _simplify(part: Any, components: dict[str, Any]) -> None:
    """Change schemas in place to those of OpenAPI 3.0, with the formats of numbers. Defaults are
    said in words, since some generators take a field with one for required. A component that may
    be null somewhere may be so everywhere, since a reference can say nothing."""
    if isinstance(part, list):
        for each in part:
            _simplify(each, components)
    if not isinstance(part, dict):
        return
    for name, each in part.items():
        if name != "example":
            _simplify(each, components)
    for field in part.get("properties", {}).values():
        if (default := field.pop("default", None)) not in (None, [], {}):
            words = (
                field.get("description", ""),
                f"By default {msgspec.json.encode(default).decode()}.",
            )
            field["description"] = " ".join(filter(None, words))
    if "discriminator" in part:
        part["oneOf"] = part.pop("anyOf")
    if NULL in part.get("anyOf", ()):
        (kind,) = (each for each in part.pop("anyOf") if each != NULL)
        part |= kind
        components.get(kind.get("$ref", "").rpartition("/")[2], part)["nullable"] = True
    if "enum" in part:
        part["type"] = "string"
    if isinstance(text := part.get("description"), str):
        part["description"] = " ".join(text.split())
    if part.get("exclusiveMinimum", True) is not True:
        part |= {"minimum": part["exclusiveMinimum"], "exclusiveMinimum": True}
    if found := FORMATS.get(str(part.get("type"))):
        part["format"] = found


def _describe_operation(operation: Operation, by_type: dict[type, Any], *, token: bool) -> Any:
    example = EXAMPLES.get(operation.name, {})
    found: dict[str, Any] = {
        "operationId": operation.name, "summary": operation.description,
        "parameters": [*_in_path(operation), *_in_query(operation)],
        "responses": {
            str(operation.success): _answer(operation, by_type),
            **_problems(operation, by_type),
        },
        "security": [{"token": []}] if token else [{}, {"token": []}],
    }  # fmt: skip
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
    if operation.success == 202:
        found["headers"] = _header("Location", "string")
    return found


def _header(name: str, kind: str) -> dict[str, Any]:
    return {name: {"schema": {"type": kind}}}


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
            **({"headers": _header("Retry-After", "integer")} if status in ("429", "503") else {}),
        }
        for status, names in sorted(codes.items())
    }
