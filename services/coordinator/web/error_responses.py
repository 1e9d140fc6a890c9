"""Error responses: class name, message, what to do next, and the request's id."""

import logging
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match, Route

from mallorn.core.errors import InvalidRequest, MallornError, NotFound
from mallorn.core.job_options import JobOptions
from mallorn.core.os_errors import explain_os_error
from mallorn.core.storable_json import quote_untrusted
from mallorn.services.coordinator.web.forwarded_headers import request_id

log = logging.getLogger(__name__)
CLIENT_CLOSED_REQUEST: Final = 499
ANSWER_HEADERS: Final[dict[int, dict[str, str]]] = {
    401: {"WWW-Authenticate": "Bearer"},
    503: {"Retry-After": "5"},
}
MOST_PROBLEMS: Final = 10
#: Schemas of the objects in a request whose unknown fields get a hint, by field name.
NAMED_FIELDS: Final[dict[str, type[BaseModel]]] = {"options": JobOptions} | {
    name: type(value) for name, value in JobOptions() if isinstance(value, BaseModel)
}


class BodyRefused(HTTPException):
    """Carries an error out of FastAPI's body reader, which passes only HTTPException on."""

    def __init__(self, error: MallornError) -> None:
        super().__init__(error.status_code)
        self.error = error


class ErrorBody(BaseModel):
    """An error: what happened, and what to do next."""

    error: str = Field(description="Name of the error class.")
    detail: str = Field(description="What happened.")
    hint: str = Field(description="What to do next; may be empty.")
    request_id: str = Field(description="Id of this request in the service's log lines.")


def error_response(error: MallornError) -> JSONResponse:
    """Return the response for an error; it is an ASGI app, too."""
    headers = ANSWER_HEADERS.get(error.status_code)
    if error.retry_sec is not None:
        headers = {"Retry-After": str(error.retry_sec)}
    body = ErrorBody(error=error.code, detail=error.message, hint=error.hint, request_id=request_id.get())
    return JSONResponse(body.model_dump(), error.status_code, headers)


def install(app: FastAPI) -> None:
    """Register handlers that turn every error of the app into an ErrorBody."""
    app.add_exception_handler(MallornError, _respond)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(
        ClientDisconnect, lambda _request, _error: Response(status_code=CLIENT_CLOSED_REQUEST)
    )
    app.add_exception_handler(OSError, _on_host_error)
    app.add_exception_handler(MemoryError, _on_host_error)
    app.add_exception_handler(Exception, _on_unexpected)


def _respond(request: Request, error: Exception) -> Response:
    assert isinstance(error, MallornError)  # noqa: S101 - what it is registered for
    if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        # Errors such as Unavailable explain themselves; a 500 needs its traceback.
        trace = error if error.status_code == HTTPStatus.INTERNAL_SERVER_ERROR else None
        log.error("%s %s: %s", request.method, request.url.path, error.message, exc_info=trace)
    return error_response(error)


def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - what it is registered for
    problems = error.errors()
    words = [_problem(problem) for problem in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        words.append(f"and {len(problems) - MOST_PROBLEMS:,} more")
    unknown = next((p for p in problems[:MOST_PROBLEMS] if p["type"] == "extra_forbidden"), None)
    parent = NAMED_FIELDS.get(str(unknown["loc"][-2])) if unknown else None
    hint = f"known: {', '.join(sorted(parent.model_fields))}" if parent else "see /docs"
    return _respond(request, InvalidRequest("; ".join(words), hint=hint))


def _problem(problem: ErrorDetails) -> str:
    _, *path = problem["loc"]
    field = quote_untrusted(".".join(str(part) for part in path)) or "the body"
    if problem["type"] == "extra_forbidden":
        return f"{field}: there is no such field"
    if problem["type"] == "json_invalid":
        return f"the body is not JSON: {_lower_first_letter(problem['ctx']['error'])} at character {path[0]}"
    return f"{field}: {_lower_first_letter(problem['msg'])}"


def _lower_first_letter(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    if isinstance(error, BodyRefused):
        return _respond(request, error.error)
    if error.status_code == HTTPStatus.NOT_FOUND:
        path = quote_untrusted(request.url.path)
        return _respond(request, NotFound(f"there is no {path}", hint="see /docs"))
    if error.status_code == HTTPStatus.BAD_REQUEST:  # no text, or nested too deeply
        return _respond(request, InvalidRequest(f"the body cannot be read: {error.detail}", hint="see /docs"))
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:  # Starlette lists one route
        routes = (route for route in request.app.routes if isinstance(route, Route))
        fitting = (route for route in routes if route.matches(request.scope)[0] is not Match.NONE)
        headers["Allow"] = ", ".join(sorted({method for route in fitting for method in route.methods or ()}))
    body = {
        "error": HTTPStatus(error.status_code).phrase.title().replace(" ", ""),
        "detail": f"{quote_untrusted(request.method)} {quote_untrusted(request.url.path)}: {error.detail}",
        "hint": "see /docs",
        "request_id": request_id.get(),
    }
    return JSONResponse(body, error.status_code, headers)


def _on_host_error(request: Request, error: Exception) -> Response:
    host_error = explain_os_error(error)
    if host_error is None:
        raise error
    return _respond(request, host_error)


def _on_unexpected(request: Request, error: Exception) -> Response:
    # Starlette re-raises the error after this response, and the server logs the traceback.
    log.error("%s %s failed: %r", request.method, request.url.path, error)
    return error_response(MallornError(hint="see the log of the coordinator"))
