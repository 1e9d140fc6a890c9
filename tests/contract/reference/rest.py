"""The page of the REST API."""

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from mallorn.services.coordinator.api_docs_page import (
    ApiDescription,
    JsonSchema,
    Operation,
    Parameter,
    Payload,
    Route,
)
from tests.contract.reference.markdown import code, described, page, table

WORDS: Final = (
    "Every answer is JSON; errors are `{error, detail, hint, request_id}`. Where there are keys",
    "(`mallorn keys`), send `Authorization: Bearer KEY`; a route names the scopes of which it needs one.",
    "A page of a list carries `next_cursor`: the `cursor` of the next one. Answers and log lines have the",
    "`X-Request-ID` of their request.",
    "`/docs` is the same, to try out, and `/api/v1/openapi.json` for programs.",
)
# Their place in the path says what they are.
IN_PATH: Final = "path"


def rest_page() -> str:
    """Every route, then every body."""
    from mallorn.core.settings import Settings
    from mallorn.services.coordinator.app import create_app

    api = ApiDescription.model_validate(create_app(Settings()).openapi())
    lines = [*WORDS, ""]
    for tag, routes in groupby(sorted(api.routes(), key=_tag), key=_tag):
        lines += [f"## {tag[:1].upper()}{tag[1:]}", ""]
        for route in routes:
            lines += _route(f"{route.method} {route.path}", route.operation)
    lines += ["## Bodies", ""]
    for name, shape in sorted(api.schemas.items()):
        lines += _body(name, shape)
    return page("REST API", *lines)


def _tag(route: Route) -> str:
    return route.operation.tags[0]


def _route(name: str, operation: Operation) -> list[str]:
    lines = [f"### {name}", "", described(name, operation.description), ""]
    if operation.scopes:
        lines += [f"Needs {' or '.join(map(code, operation.scopes))}.", ""]
    asked = [one for one in operation.parameters if one.place != IN_PATH]
    if asked:
        lines += table(["parameter", "type", "meaning"], [_parameter(name, one) for one in asked])
    return [*lines, *_bodies(operation)]


def _parameter(route: str, parameter: Parameter) -> tuple[str, str, str]:
    name = f"{parameter.name} (header)" if parameter.place == "header" else parameter.name
    return code(name), type_of(parameter.shape), described(f"{name} of {route}", parameter.description)


def _bodies(operation: Operation) -> Iterator[str]:
    """What is sent and what comes back."""
    if sent := _content(operation.request_body):
        yield from (f"Takes {sent}.", "")
    for status, answer in operation.responses.items():
        if status.startswith("2") and (told := _content(answer)):
            yield from (f"Answers {status} with {told}.", "")


def _content(body: Payload) -> str:
    for kind, content in body.content.items():
        return code(type_of(content.shape)) if kind == "application/json" else code(kind)
    return ""


def _body(name: str, shape: JsonSchema) -> list[str]:
    """A schema; `x: type` says all of some fields, so theirs may lack words."""
    words = " ".join(shape.description.split())
    if shape.properties is None:
        return [f"### {name}", "", words or type_of(shape), ""]
    rows = [
        (code(field), type_of(of), " ".join(of.description.split())) for field, of in shape.properties.items()
    ]
    return [f"### {name}", "", *([words, ""] if words else []), *table(["field", "type", "meaning"], rows)]


def type_of(shape: JsonSchema) -> str:
    """The type of a JSON schema in a few words."""
    if shape.name:
        return shape.name
    if shape.variants:
        return " or ".join(map(type_of, shape.variants))
    if shape.enum:
        return ", ".join(f'"{value}"' for value in shape.enum)
    if shape.type == "array":
        return f"list of {type_of(shape.items or JsonSchema())}"
    if isinstance(shape.additional_properties, JsonSchema):
        return f"object of {type_of(shape.additional_properties)}"
    return shape.type or "any"
