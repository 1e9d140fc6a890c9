"""The page of the API at `/docs`: made of its own description, without a script and without the internet."""

from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from mallorn.report.html import Html, el
from mallorn.report.style import PAGE, SERVED

Json = dict[str, Any]
SCHEMAS: Final = "#/components/schemas/"
JSON_TYPE: Final = "application/json"


def add_docs(app: FastAPI) -> None:
    """Serve the page."""

    def docs(request: Request) -> Response:
        page = document(app.openapi(), str(request.base_url).rstrip("/"), app.openapi_url or "")
        return HTMLResponse(page, headers={"Content-Security-Policy": SERVED})

    app.add_api_route("/docs", docs, include_in_schema=False, response_model=None)


def document(api: Json, origin: str, description_path: str) -> str:
    """The whole page; `origin` is the address that the examples name."""
    title = f"{api['info']['title']} {api['info']['version']}: the API"
    body = el(
        "body",
        el("h1", title),
        el("p", "The same for programs: ", el("a", "openapi.json", href=description_path.lstrip("/"))),
        el("p", "A server with API keys wants one: ", el("code", "-H 'Authorization: Bearer KEY'")),
        el("ul", (_entry(*found) for found in _operations(api))),
        (_operation(origin, *found) for found in _operations(api)),
        el("h2", "What goes in and comes out"),
        (_schema(name, schema) for name, schema in sorted(api["components"]["schemas"].items())),
    )
    head = el("head", el("meta", charset="utf-8"), el("title", title), el("style", PAGE))
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _operations(api: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _entry(method: str, path: str, operation: Json) -> Html:
    link = el("a", f"{method} {path}", href=f"#{operation['operationId']}")
    return el("li", link, f": {operation['description'].splitlines()[0]}")


def _operation(origin: str, method: str, path: str, operation: Json) -> Html:
    parameters = operation.get("parameters", [])
    return el(
        "section",
        el("h2", f"{method} {path}", id=operation["operationId"]),
        el("p", operation["description"]),
        el("pre", _example(origin, method, path, operation)),
        _fields([(found, found["schema"]) for found in parameters]) if parameters else None,
        el("p", "Takes ", _content(operation["requestBody"])) if "requestBody" in operation else None,
        (_answer(status, answer) for status, answer in operation["responses"].items()),
    )


def _example(origin: str, method: str, path: str, operation: Json) -> str:
    body = operation.get("requestBody", {}).get("content", {})
    if method == "GET":
        return f"curl {origin}{path}"
    if JSON_TYPE in body:
        return f"curl {origin}{path} -H 'Content-Type: {JSON_TYPE}' -d @request.json"
    return f"curl -T FILE {origin}{path}" if body else f"curl -X {method} {origin}{path}"


def _answer(status: str, answer: Json) -> Html:
    content = [" ", _content(answer)] if "content" in answer else None
    return el("p", el("b", status), f" {answer['description']}", content, class_="note")


def _content(body: Json) -> list[Any]:
    """The types of a body, each as a link where it has a name."""
    return [_type(content.get("schema", {})) or kind for kind, content in body["content"].items()]


def _schema(name: str, schema: Json) -> Html:
    required = schema.get("required", [])
    fields = [
        ({"name": key, "description": value.get("description", ""), "required": key in required}, value)
        for key, value in schema.get("properties", {}).items()
    ]
    return el(
        "section",
        el("h3", name, id=name),
        el("p", schema.get("description", "")),
        _fields(fields) if fields else el("p", _type(schema)),
    )


def _fields(rows: list[tuple[Json, Json]]) -> Html:
    return el(
        "div",
        el(
            "table",
            el("tr", (el("th", heading) for heading in ("Name", "Type", "Default", "Meaning"))),
            (_field(found, schema) for found, schema in rows),
        ),
        class_="wide",
    )


def _field(found: Json, schema: Json) -> Html:
    default = "required" if found.get("required") else str(schema.get("default", ""))
    where = f" ({found['in']})" if "in" in found else ""
    cells = (el("code", found["name"], where), _type(schema), default, found.get("description", ""))
    return el("tr", (el("td", cell) for cell in cells))


def _type(schema: Json) -> list[Any]:
    """A type in words; one with a name is a link to it."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(SCHEMAS)
        return [el("a", name, href=f"#{name}")]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            kinds = [_type(each) for each in schema[several]]
            return [piece for at, kind in enumerate(kinds) for piece in ([" or "] if at else []) + kind]
    if "enum" in schema:
        return [", ".join(map(str, schema["enum"]))]
    if schema.get("type") == "array":
        return ["list of ", *_type(schema.get("items", {}))]
    return [schema["type"]] if "type" in schema else []
