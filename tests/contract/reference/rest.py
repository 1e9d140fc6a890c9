"""The page of the REST API."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from tests.contract.reference.markdown import code, described, page, schema_type, table

WORDS: Final = (
    "Every answer is JSON; errors are `{error, detail, hint}`. Where there are keys (`mallorn keys`), send",
    "`Authorization: Bearer KEY`; a route names the scopes of which the key needs one. A page of a list",
    "carries `next_cursor`: the `cursor` of the next one.",
    "`/docs` is the same, to try out, and `/api/v1/openapi.json` for programs.",
)
# Their place in the path says what they are.
IN_PATH: Final = "path"


def rest_page() -> str:
    """Every route, then every body."""
    from mallorn.core.settings import Settings
    from services.coordinator.app import create_app

    document = create_app(Settings()).openapi()
    lines = [*WORDS, ""]
    for tag, routes in groupby(_routes(document), key=lambda route: route[0]):
        lines += [f"## {tag[:1].upper()}{tag[1:]}", ""]
        for _, name, operation in routes:
            lines += _route(name, operation)
    lines += ["## Bodies", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += _body(name, schema)
    return page("REST API", *lines)


def _routes(document: Mapping[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Tag, method with path, and operation, by tag."""
    found = [
        (operation["tags"][0], f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return sorted(found, key=lambda route: route[0])


def _route(name: str, operation: Mapping[str, Any]) -> list[str]:
    lines = [f"### {name}", "", described(name, operation.get("description")), ""]
    if may := operation.get("x-scopes"):
        lines += [f"Needs {' or '.join(map(code, may))}.", ""]
    asked = [one for one in operation.get("parameters", []) if one["in"] != IN_PATH]
    if asked:
        lines += table(["parameter", "type", "meaning"], [_parameter(name, one) for one in asked])
    return [*lines, *_bodies(operation)]


def _parameter(route: str, parameter: Mapping[str, Any]) -> tuple[str, str, str]:
    name = f"{parameter['name']} (header)" if parameter["in"] == "header" else parameter["name"]
    words = described(f"{name} of {route}", parameter.get("description"))
    return code(name), schema_type(parameter["schema"]), words


def _bodies(operation: Mapping[str, Any]) -> Iterator[str]:
    """What is sent and what comes back."""
    if sent := _content(operation.get("requestBody", {})):
        yield from (f"Takes {sent}.", "")
    for status, answer in operation["responses"].items():
        if status.startswith("2") and (told := _content(answer)):
            yield from (f"Answers {status} with {told}.", "")


def _content(body: Mapping[str, Any]) -> str:
    for kind, content in body.get("content", {}).items():
        name = schema_type(content.get("schema", {}))
        return code(name) if kind == "application/json" else code(kind)
    return ""


def _body(name: str, schema: Mapping[str, Any]) -> list[str]:
    """A schema; `x: type` says all of some fields, so theirs may lack words."""
    words = " ".join(schema.get("description", "").split())
    if "properties" not in schema:
        return [f"### {name}", "", words or schema_type(schema), ""]
    rows = [
        (code(field), schema_type(shape), " ".join(shape.get("description", "").split()))
        for field, shape in schema["properties"].items()
    ]
    return [f"### {name}", "", *([words, ""] if words else []), *table(["field", "type", "meaning"], rows)]
