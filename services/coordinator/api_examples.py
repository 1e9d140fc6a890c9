"""Examples in the OpenAPI document, made from the schemas and from typical values by field name."""

from typing import Any, Final

from pydantic import JsonValue

from mallorn.services.coordinator.web.response_types import REF

Document = dict[str, Any]  # OpenAPI, or a part of it
#: Typical values by the name of a parameter or field; other fields get their default.
TYPICAL: Final[dict[str, JsonValue]] = {
    "action": "sign-out",
    "cost_model_id": 3,
    "created_at": 1_795_000_000.0,
    "day": "2026-11-18",
    "full_name": "conv2d/xgboost@2",
    "index": 0,
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
    "upload_id": "5b1e7c0a94d2f836",
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
    """Return a value that fits a schema; an object in a request has only required and typical fields."""
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
