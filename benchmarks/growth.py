"""Cost of each HTTP route by the length of the request: `python -m benchmarks.growth`.

Routes come from the app's own description. Each place that takes a text (path and query parameters,
headers, the body and its fields) gets texts of seven lengths, each twice the last, with an API key
and without. Requests enter the app as from a server, and each formats an access log line.
"""

import argparse
import asyncio
import json
import logging
import re
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import quote

from fastapi import FastAPI

from benchmarks.hosts import describe_host
from mallorn.core.api_keys import hash_secret
from mallorn.core.log_setup import TextLines
from mallorn.core.settings import Settings
from mallorn.db.migrate import upgrade
from mallorn.services.coordinator.app import create_app

KEY: Final = "a key of this measurement alone"
PIECE_BYTES: Final = 1 << 16  # size of the pieces in which a server passes a body
LARGEST_MODEL: Final = 1 << 18
DOUBLINGS: Final = 6
HEAD_LENGTHS: Final = tuple(1024 << step for step in range(DOUBLINGS + 1))
BODY_LENGTHS: Final = tuple(8 * 1024 << step for step in range(DOUBLINGS + 1))
UNITS: Final = ("a", ":", "//", "[", "%3A", "%F0%9F%8C%B3", "pass", "a:b@")
#: Routes that the app's description lacks.
HIDDEN: Final = ("/", "/docs", "/icon.svg", "/assets/x.js", "/api/v1/openapi.json", "/nowhere")
HEADERS: Final = (
    "authorization",
    "cookie",
    "content-type",
    "accept",
    "origin",
    "host",
    "sec-fetch-site",
    "x-other",
)
TEXT: Final = "<text>"  # placeholder that a case replaces by its text
COOKIES: Final = tuple(
    f"{name}={text}"
    for name in ("mallorn_session_8000", "mallorn_oidc_8000", "theirs")
    for text in (TEXT, f'"{TEXT}"')
)
COOKIE_UNITS: Final = ("a", '\\"', "\\012", ".", ";", "; a=", "=")
JOB: Final = {"model_id": "0" * 64, "target": {"kind": "llvm", "num-cores": 2}, "trials": 1}
KINDS: Final[Mapping[str, Callable[[int], object]]] = {
    "colons": lambda length: ":" * length,
    "a list": lambda length: ["x*"] * (length // 5),
    "keys": lambda length: {f"k{at}": [1] for at in range(length // 12)},
}
_log = TextLines("growth")


@dataclass(frozen=True)
class Request:
    """An HTTP request as received."""

    method: str
    path: str
    query: str = ""
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    is_chunked: bool = False


@dataclass(frozen=True)
class Case:
    """One place of one route; `make` returns a request whose text there has this length."""

    route: str
    place: str
    make: Callable[[int], Request] = field(compare=False)
    in_body: bool = False

    @property
    def lengths(self) -> tuple[int, ...]:
        return BODY_LENGTHS if self.in_body else HEAD_LENGTHS


@dataclass(frozen=True)
class Answer:
    """Response to one request, with its seconds and the body bytes that the app read."""

    status: int
    seconds: float
    body: bytes
    taken_bytes: int


def cases(app: FastAPI) -> Iterator[Case]:
    """Yield a case for every place of every route of the app's description."""
    document = app.openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield from _of_route(method.upper(), path, operation, document["components"]["schemas"])
    for path in HIDDEN:
        yield from _filled(f"GET {path}", "query", Request("GET", path, TEXT), UNITS)
        yield from _filled(f"GET {path}", "path behind it", Request("GET", f"{path}/{TEXT}"), UNITS)
    for method, path in (("GET", "/healthz"), ("GET", "/api/v1/jobs"), ("DELETE", "/api/v1/session")):
        yield from _headers(method, path)


def _of_route(
    method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]
) -> Iterator[Case]:
    route = f"{method} {path}"
    plain = re.sub(r"{\w+}", "1", path)
    for parameter in operation.get("parameters", ()):
        name, place = parameter["name"], parameter["in"]
        filled = {
            "path": Request(method, re.sub(r"{\w+}", "1", path.replace(f"{{{name}}}", TEXT, 1))),
            "query": Request(method, plain, f"{name}={TEXT}"),
            "header": Request(method, plain, headers=[(name.lower(), TEXT)]),
        }
        yield from _filled(route, f"{place} {name}", filled[place], UNITS[:2])
    yield from _filled(route, "query", Request(method, plain, TEXT), UNITS[:1])
    for place, body in _bodies(operation, schemas):
        yield Case(route, f"body {place}", partial(_with_body, method, plain, body, False), in_body=True)
    make_chunked = partial(_with_body, method, plain, partial(_repeated, b"x"), True)
    yield Case(route, "body without an announced length", make_chunked, in_body=True)


def _filled(route: str, place: str, template: Request, units: Sequence[str]) -> Iterator[Case]:
    for unit in units:
        yield Case(route, f"{place} of {unit!r}", partial(_of_length, template, unit))


def _of_length(template: Request, unit: str, length: int) -> Request:
    text = unit * (length // len(unit))
    return replace(
        template,
        path=template.path.replace(TEXT, text),
        query=template.query.replace(TEXT, text),
        headers=[(name, value.replace(TEXT, text)) for name, value in template.headers],
    )


def _headers(method: str, path: str) -> Iterator[Case]:
    route = f"{method} {path}"
    for name in HEADERS:
        yield from _filled(route, f"header {name}", Request(method, path, headers=[(name, TEXT)]), UNITS)
    for cookie in COOKIES:
        filled = Request(method, path, headers=[("cookie", cookie)])
        yield from _filled(route, f"cookie {cookie}", filled, COOKIE_UNITS)
    yield Case(route, "many headers", partial(_many_headers, method, path))


def _many_headers(method: str, path: str, length: int) -> Request:
    return Request(method, path, headers=[("x", "y")] * (length // 2))


def _bodies(
    operation: Mapping[str, Any], schemas: Mapping[str, Any]
) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        yield "of bytes", partial(_repeated, b"x")
        return
    for unit in (b"[", b'{"a":', b"1", b'"', b'["",'):
        yield f"of {unit.decode()!r}", partial(_repeated, unit)
    yield "of unknown fields", partial(_json, (), "keys")
    schema = content["application/json"]["schema"]
    for shape in schema.get("anyOf", [schema]):
        model = shape.get("$ref", "").rpartition("/")[2]
        fields = [(name,) for name in schemas.get(model, {}).get("properties", {})]
        options = schemas["JobOptions"]["properties"] if model == "JobIn" else ()
        for place in [
            *fields,
            *(("options", name) for name in options),
            *((("target", "mattr"),) if options else ()),
        ]:
            for kind in KINDS:
                yield f"of {kind} in {'.'.join(place)}", partial(_json, place, kind)


def _repeated(unit: bytes, length: int) -> bytes:
    return unit * (length // len(unit))


def _json(place: Sequence[str], kind: str, length: int) -> bytes:
    """Return a JSON body whose field at this place has a value of about this length."""
    body: object = TEXT
    for name in reversed(place):
        body = {name: body}
    if isinstance(body, dict):
        body = {**JOB, **body}
    return _as_json(body).replace(_as_json(TEXT), _json_value(kind, length)).encode()


@cache
def _json_value(kind: str, length: int) -> str:
    return _as_json(KINDS[kind](length))


def _as_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _with_body(
    method: str, path: str, body: Callable[[int], bytes], is_chunked: bool, length: int
) -> Request:
    headers = [("content-type", "application/json")]
    return Request(method, path, headers=headers, body=body(length), is_chunked=is_chunked)


async def ask(app: FastAPI, request: Request, key: str | None = KEY) -> Answer:
    """Send a request to the app as a server does; count body bytes that the app reads."""
    headers = [*request.headers]
    names = {name for name, _ in headers}
    headers += [] if "host" in names else [("host", "127.0.0.1:8000")]
    headers += [("authorization", f"Bearer {key}")] if key and "authorization" not in names else []
    if request.is_chunked:
        headers.append(("transfer-encoding", "chunked"))
    elif request.body:
        headers.append(("content-length", str(len(request.body))))
    path, _, query = request.path.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": path,
        "raw_path": quote(path, safe="/:%").encode(),
        "root_path": "",
        "query_string": (query or request.query).encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }
    taken, status, body = 0, 0, bytearray()

    async def receive() -> dict[str, Any]:
        nonlocal taken
        if taken and taken >= len(request.body):
            return {"type": "http.disconnect"}
        piece = request.body[taken : taken + PIECE_BYTES]
        taken += len(piece) or 1
        return {"type": "http.request", "body": piece, "more_body": taken < len(request.body)}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        body.extend(message.get("body", b""))

    began_sec = time.perf_counter()
    await app(scope, receive, send)
    line = f'127.0.0.1 - "{request.method} {request.path}?{request.query} HTTP/1.1" {status}'
    _log.format(logging.LogRecord("uvicorn.access", logging.INFO, "", 0, line, (), None))
    return Answer(status, time.perf_counter() - began_sec, bytes(body), taken)


async def peak_of(app: FastAPI, request: Request, key: str | None = KEY) -> int:
    """Return the peak bytes that Python allocated while the app handled one request."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await ask(app, request, key)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def app_in(folder: Path) -> FastAPI:
    """Create a coordinator with an API key and a new database in `folder`."""
    settings = Settings(
        data_dir=folder,
        database_url=f"sqlite:///{folder / 'growth.db'}",
        artifacts=str(folder / "artifacts"),
        redis_url="memory://",
        api_keys={"ada": hash_secret(KEY)},
        max_model_bytes=LARGEST_MODEL,
    )
    upgrade(settings.database_url)
    return create_app(settings)


async def _measure(app: FastAPI, case: Case, key: str | None, passes: int) -> dict[str, Any]:
    rows = []
    for length in case.lengths:
        request = case.make(length)
        answers = [await ask(app, request, key) for _ in range(passes)]
        peak = await peak_of(app, request, key)
        rows.append(
            {
                "length": length,
                "status": answers[0].status,
                "seconds": min(each.seconds for each in answers),
                "peak_bytes": peak,
                "taken_bytes": answers[0].taken_bytes,
                "answer_bytes": len(answers[0].body),
            }
        )
    return {"route": case.route, "place": case.place, "with_key": key is not None, "lengths": rows}


async def _measure_all(app: FastAPI, passes: int) -> list[dict[str, Any]]:
    return [await _measure(app, case, key, passes) for case in cases(app) for key in (KEY, None)]


def steepest(measured: Sequence[Mapping[str, Any]]) -> float:
    """Return the largest ratio of seconds of a text to those of one an eighth as long."""
    pairs = ((row["lengths"][i], row["lengths"][i + 3]) for row in measured for i in range(DOUBLINGS - 2))
    return max(float(long["seconds"] / short["seconds"]) for short, long in pairs)


def main() -> None:
    """Measure all places of all routes and print the slowest ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with TemporaryDirectory(prefix="mallorn-growth-") as folder:
        measured = asyncio.run(_measure_all(app_in(Path(folder)), args.passes))
    measured.sort(key=lambda row: -max(each["seconds"] for each in row["lengths"]))
    for row in measured[:20]:
        most = max(row["lengths"], key=lambda each: each["seconds"])
        key = "with a key" if row["with_key"] else "without a key"
        print(
            f"{row['route']} {row['place']} {key}: {most['seconds']:.3f} s at {most['length']:,} characters"
        )
    headline = steepest(measured)
    if args.json:
        raw = {"benchmark": "growth", **describe_host(), "passes": args.passes, "rows": measured}
        args.json.write_text(_as_json(raw | {"headline": headline}) + "\n")
    print(f"{len(measured)} places: eight times the text takes {headline:.1f} times as long at most")


if __name__ == "__main__":
    main()
