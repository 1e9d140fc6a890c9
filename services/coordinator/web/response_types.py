"""Response types (pages and lists), bounds of integers, and descriptions and examples for
OpenAPI."""

from typing import Annotated, Any, Final, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, JsonValue

from mallorn.db.repositories.base import MAX_LIMIT

Schema = dict[str, object]  # JSON schema
Document = dict[str, Any]  # OpenAPI, or a part of it
Responses = dict[int | str, Document]  # by status
REF: Final = "#/components/schemas/{model}"
TEXT: Final[Schema] = {"type": "string"}
BYTES: Final[Schema] = {"type": "string", "format": "binary"}


def describe_response(media_type: str, words: str, schema: Schema) -> Responses:
    """Return the description of a 200 response with a body of this type."""
    return {200: {"description": words, "content": {media_type: {"schema": schema}}}}


MAX_INT: Final = 2**31 - 1  # also the largest seed of TVM
MAX_BIG_INT: Final = 2**63 - 1
Item = TypeVar("Item")


class PageOut(BaseModel, Generic[Item]):
    """One page of items, and the cursor of the next page; null on the last page."""

    items: list[Item]
    next_cursor: str | None


class ListOut(BaseModel, Generic[Item]):
    """All items, without pages."""

    items: list[Item]


CursorQuery = Annotated[str | None, Query(description="`next_cursor` of the previous page.")]
LimitQuery = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum items per page.")]

#: Typical values by the name of a parameter or field; other fields get their default.
TYPICAL: Final[dict[str, JsonValue]] = {
    "action": "sign-out",
    "cost_model_id": 3,
    "created_at": 1_795_000_000.0,
    "day": "2026-11-18",
    "index": 0,
    "full_name": "conv2d/xgboost@2",
    "digest": "9f86d081" * 8,
    "id": "2f3a6c1b0d9e8f70",
    "job_id": "2f3a6c1b0d9e8f70",
    "key": "mln_k3v9x2_SECRET",
    "key_id": "k3v9x2",
    "latency_us": 41.2,
    "model_id": "9f86d081" * 8,
    "name": "resnet50",
    "owner": "ada",
    "run_us": [41.1, 41.2, 41.4],
    "schedule_id": 7,
    "scopes": ["read", "submit"],
    "started_at": 1_795_000_002.0,
    "target": '{"kind":"llvm","mcpu":"skylake-avx512","num-cores":8}',
    "trials": 200,
    "worker": "host-1-4242-0",
    "workload": "4698dce24e19b7f2",
}
BY_TYPE: Final[dict[str, JsonValue]] = {"integer": 1, "number": 1.0, "boolean": True, "string": "text"}
TEXTS: Final = {
    "text/html": "<!doctype html><html lang='en'>...</html>",
    "text/event-stream": 'id: 1\nevent: submitted\ndata: {"kind":"submitted","trials":200}\n\n',
}


def add_examples(document: Document) -> None:
    """Add examples to path parameters, to requests in JSON, and to successful responses in text."""
    schemas = document["components"]["schemas"]
    for operation in (operation for methods in document["paths"].values() for operation in methods.values()):
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                parameter["example"] = TYPICAL[parameter["name"]]
        bodies = [(True, operation.get("requestBody", {}))]
        bodies += [(False, body) for status, body in operation["responses"].items() if status.startswith("2")]
        for is_request, body in bodies:
            for kind, content in body.get("content", {}).items():
                if kind == "application/json":
                    content["example"] = _example(content["schema"], "", schemas, is_request)
                elif kind in TEXTS:
                    content["example"] = TEXTS[kind]


def _example(schema: Document, name: str, schemas: Document, is_request: bool) -> JsonValue:
    """Return a value that fits a schema; in a request, with required and typical fields only."""
    typical = TYPICAL.get(name)
    if typical is not None and not (schema.get("type") == "integer" and isinstance(typical, str)):
        return typical
    if "$ref" in schema:
        schema = schemas[schema["$ref"].removeprefix(REF.format(model=""))]
    elif "default" in schema or (name and "anyOf" in schema):
        default: JsonValue = schema.get("default")
        return default
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], name, schemas, is_request)
    if "properties" in schema:
        return {
            field: _example(part, field, schemas, is_request)
            for field, part in schema["properties"].items()
            if not is_request or field in TYPICAL or field in schema.get("required", ())
        }
    if "enum" in schema:
        first: JsonValue = schema["enum"][0]
        return first
    if schema.get("type") == "array":
        return [_example(schema["items"], name, schemas, is_request)]
    return BY_TYPE.get(schema.get("type", ""), {})
