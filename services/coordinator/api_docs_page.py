"""The API page at `/docs`, generated from the OpenAPI document without scripts."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from html import escape
from typing import Final, NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import AliasPath, BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from mallorn.report.html_elements import Html, el
from mallorn.report.style_and_csp import PAGE, SERVED


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel)

    description: str = ""


class JsonSchema(_Part):
    ref: str = Field("", alias="$ref")
    type: str = ""
    any_of: tuple["JsonSchema", ...] = ()
    one_of: tuple["JsonSchema", ...] = ()
    all_of: tuple["JsonSchema", ...] = ()
    enum: tuple[object, ...] = ()
    items: "JsonSchema | None" = None
    additional_properties: "bool | JsonSchema" = True
    properties: Mapping[str, "JsonSchema"] | None = None
    required: frozenset[str] = frozenset()
    default: object = ""

    @property
    def name(self) -> str:
        """Name of the referenced schema; empty if this is not a reference."""
        return self.ref.rpartition("/")[2]

    @property
    def variants(self) -> tuple["JsonSchema", ...]:
        """The alternatives of a union, or the parts of an intersection."""
        return self.any_of or self.one_of or self.all_of


class Parameter(_Part):
    """A parameter in the path, the query or a header."""

    name: str
    place: str = Field(alias="in")
    required: bool = False
    shape: JsonSchema = Field(alias="schema")


class Content(_Part):
    shape: JsonSchema = Field(JsonSchema(), alias="schema")
    example: JsonValue = None


class Payload(_Part):
    """The body of a request or a response, by media type."""

    content: Mapping[str, Content] = {}


class Operation(_Part):
    """An HTTP method of a path."""

    operation_id: str
    tags: tuple[str, ...] = ()
    scopes: tuple[str, ...] = Field((), alias="x-scopes")
    parameters: tuple[Parameter, ...] = ()
    request_body: Payload = Payload()
    responses: Mapping[str, Payload]


class Route(NamedTuple):
    """An operation with its HTTP method and path."""

    method: str
    path: str
    operation: Operation


class ApiDescription(_Part):
    title: str = Field(validation_alias=AliasPath("info", "title"))
    version: str = Field(validation_alias=AliasPath("info", "version"))
    paths: Mapping[str, Mapping[str, Operation]]
    schemas: Mapping[str, JsonSchema] = Field(validation_alias=AliasPath("components", "schemas"))

    def routes(self) -> Iterator[Route]:
        """Yield all operations in the order of the document."""
        for path, methods in self.paths.items():
            for method, operation in methods.items():
                yield Route(method.upper(), path, operation)


JSON_TYPE: Final = "application/json"
ANY_ORIGIN: Final = "http://origin.invalid"  # placeholder, replaced by the request's address
Words = list[str | Html]


def add_docs(app: FastAPI, description_path: str) -> None:
    """Serve the page and the OpenAPI document; each is generated once, as it is expensive."""

    @cache
    def render_openapi_json() -> bytes:
        return bytes(JSONResponse(app.openapi()).body)

    @cache
    def page() -> str:
        return render_api_page(ApiDescription.model_validate(app.openapi()), ANY_ORIGIN, description_path)

    def openapi() -> Response:
        return Response(render_openapi_json(), media_type=JSON_TYPE)

    def docs(request: Request) -> Response:
        html = page().replace(ANY_ORIGIN, escape(str(request.base_url).rstrip("/")))
        return HTMLResponse(html, headers={"Content-Security-Policy": SERVED})

    app.add_api_route(description_path, openapi, include_in_schema=False, response_model=None)
    app.add_api_route("/docs", docs, include_in_schema=False, response_model=None)


def render_api_page(api: ApiDescription, origin: str, description_path: str) -> str:
    """Return the page as HTML; `origin` is the server address in the examples."""
    title = f"{api.title} {api.version}: the API"
    entries = (
        el(
            "li",
            el("a", f"{route.method} {route.path}", href=f"#{route.operation.operation_id}"),
            f": {route.operation.description.splitlines()[0]}",
        )
        for route in api.routes()
    )
    body = el(
        "body",
        el("h1", title),
        el("p", "For programs: ", el("a", "openapi.json", href=description_path.lstrip("/"))),
        el("p", "If API keys are used, add: ", el("code", "-H 'Authorization: Bearer KEY'")),
        el("ul", entries),
        (_render_route(origin, route) for route in api.routes()),
        el("h2", "Schemas of requests and responses"),
        (_schema(name, shape) for name, shape in sorted(api.schemas.items())),
    )
    head = el("head", el("meta", charset="utf-8"), el("title", title), el("style", PAGE))
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _render_route(origin: str, route: Route) -> Html:
    operation, url = route.operation, f"{origin}{route.path}"
    body = operation.request_body.content
    if route.method == "GET":
        example = f"curl {url}"
    elif JSON_TYPE in body:
        example = f"curl {url} -H 'Content-Type: {JSON_TYPE}' -d @request.json"
    else:
        example = f"curl -T FILE {url}" if body else f"curl -X {route.method} {url}"

    parameters: list[Html] = []
    for parameter in operation.parameters:
        shape = parameter.shape.model_copy(update={"description": parameter.description})
        place = f" ({parameter.place})"
        parameters.append(_field(parameter.name, place, parameter.required, shape))
    responses = (
        [
            el(
                "p",
                el("b", status),
                f" {response.description}",
                [" ", _content(response)] if response.content else None,
                class_="note",
            ),
            _examples(response),
        ]
        for status, response in operation.responses.items()
    )
    return el(
        "section",
        el("h2", f"{route.method} {route.path}", id=operation.operation_id),
        el("p", operation.description),
        el("pre", example),
        _fields(parameters) if parameters else None,
        [el("p", "Takes ", _content(operation.request_body)), _examples(operation.request_body)]
        if body
        else None,
        responses,
    )


def _examples(body: Payload) -> list[Html]:
    examples = (content.example for content in body.content.values() if content.example is not None)
    return [el("pre", text if isinstance(text, str) else json.dumps(text, indent=1)) for text in examples]


def _content(body: Payload) -> list[Words | str]:
    return [_describe_type(content.shape) or kind for kind, content in body.content.items()]


def _schema(name: str, shape: JsonSchema) -> Html:
    properties = (shape.properties or {}).items()
    fields = [_field(field, "", field in shape.required, part) for field, part in properties]
    table = _fields(fields) if fields else el("p", _describe_type(shape))
    return el("section", el("h3", name, id=name), el("p", shape.description), table)


def _fields(rows: Iterable[Html]) -> Html:
    headings = (el("th", heading) for heading in ("Name", "Type", "Default", "Meaning"))
    return el("div", el("table", el("tr", headings), rows), class_="wide")


def _field(name: str, place: str, required: bool, shape: JsonSchema) -> Html:
    default = "required" if required else str(shape.default)
    cells = (el("code", name, place), _describe_type(shape), default, shape.description)
    return el("tr", (el("td", cell) for cell in cells))


def _describe_type(shape: JsonSchema) -> Words:
    if shape.name:
        return [el("a", shape.name, href=f"#{shape.name}")]
    if shape.variants:
        kinds = map(_describe_type, shape.variants)
        return [word for i, kind in enumerate(kinds) for word in ([" or "] if i else []) + kind]
    if shape.enum:
        return [", ".join(map(str, shape.enum))]
    if shape.type == "array":
        return ["list of ", *_describe_type(shape.items or JsonSchema())]
    return [shape.type] if shape.type else []
