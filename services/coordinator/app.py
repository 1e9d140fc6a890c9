"""The ASGI app of the coordinator: routes, middleware and shared resources."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from operator import attrgetter
from typing import Final

from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from mallorn.core.settings import Settings
from mallorn.core.version import API, SUMMARY, VERSION
from mallorn.services.coordinator.api_key_routes import owners_router as owners
from mallorn.services.coordinator.api_key_routes import router as keys
from mallorn.services.coordinator.costmodels import router as cost_models
from mallorn.services.coordinator.event_stream import SCHEMAS as EVENT_SCHEMAS
from mallorn.services.coordinator.event_stream import router as events
from mallorn.services.coordinator.fleet.routes import router as fleet
from mallorn.services.coordinator.health import router as health
from mallorn.services.coordinator.jobs import list_and_show, pause_resume_cancel, submit
from mallorn.services.coordinator.options_and_retention import router as options
from mallorn.services.coordinator.schedules import router as schedules
from mallorn.services.coordinator.sign_in.browser_sessions import open_router as open_sessions
from mallorn.services.coordinator.sign_in.browser_sessions import router as sessions
from mallorn.services.coordinator.sign_in.oidc import router as oidc
from mallorn.services.coordinator.sign_in.oidc_provider import Provider
from mallorn.services.coordinator.uploaded_models import router as models
from mallorn.services.coordinator.uploaded_models import uploads_router
from mallorn.services.coordinator.web import error_responses
from mallorn.services.coordinator.web.app_parts import AppParts
from mallorn.services.coordinator.web.audit_log import AuditMiddleware, JobLogMiddleware
from mallorn.services.coordinator.web.audit_log import router as audit
from mallorn.services.coordinator.web.authenticator import set_default_scopes
from mallorn.services.coordinator.web.caller_dependencies import get_caller
from mallorn.services.coordinator.web.cross_site import CrossSiteMiddleware
from mallorn.services.coordinator.web.forwarded_headers import ProxyPrefix, RequestIds
from mallorn.services.coordinator.web.request_limits import CallerBeforeBody, RequestLimits, StreamAdmission
from mallorn.services.coordinator.web.response_types import Document, Responses, add_examples
from mallorn.services.dashboard.static_pages import add_page

FAILURES: Final[Responses] = {
    status: {"model": error_responses.ErrorBody, "description": words}
    for status, words in {
        401: "The request has no valid API key or sign-in.",
        403: "The key lacks a scope, or the request comes from another website.",
        404: "The resource does not exist or belongs to another owner.",
        408: "The request body arrived too slowly.",
        409: "The state of the resource does not allow this request.",
        413: "The upload or the request body is too large.",
        422: "The request is invalid.",
        429: "A quota or rate limit is exceeded; `Retry-After` says when to retry.",
        431: "The URL or the headers are too large.",
        503: "A required part of the service does not respond.",
        507: "The disk is full.",
    }.items()
}


class Coordinator(FastAPI):
    """FastAPI app whose OpenAPI document has examples and the schemas of streamed events."""

    def openapi(self) -> Document:
        if self.openapi_schema is None:
            document = super().openapi()
            document["components"]["schemas"] |= EVENT_SCHEMAS
            add_examples(document)
        return super().openapi()

    @cached_property
    def openapi_json(self) -> bytes:
        """OpenAPI document as JSON. To encode it for each request would delay all others."""
        return bytes(JSONResponse(self.openapi()).body)

    def build_middleware_stack(self) -> ASGIApp:
        """Put the request ids outside, so that unexpected errors have one, too."""
        return RequestIds(super().build_middleware_stack())


def create_app(settings: Settings) -> FastAPI:
    """Return the ASGI app. Raises InvalidRequest for an empty or malformed allow-list."""
    provider = Provider(settings) if settings.oidc_issuer else None
    parts = AppParts.from_settings(settings)
    app = Coordinator(
        title="Mallorn",
        version=VERSION,
        summary=SUMMARY,
        generate_unique_id_function=attrgetter("name"),  # the function's: a stable id
        servers=[{"url": "../.."}],  # relative to the document's URL, which may have a proxy's prefix
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        root_path_in_servers=False,
        openapi_url=None,
    )
    app.state.parts = parts
    app.state.provider = provider
    error_responses.install(app)
    app.add_middleware(CallerBeforeBody)  # the first one added is the innermost
    app.add_middleware(ProxyPrefix)
    app.add_middleware(StreamAdmission, parts=parts)
    app.add_middleware(JobLogMiddleware)
    app.add_middleware(AuditMiddleware, database=parts.database)
    app.add_middleware(RequestLimits)
    app.add_middleware(CrossSiteMiddleware, door=parts.door)
    # These routes require a caller; new routes go here, so that none is public.
    api = APIRouter(dependencies=[Depends(get_caller)], responses=FAILURES)
    jobs = (module.router for module in (submit, list_and_show, pause_resume_cancel))
    of_jobs = *jobs, events, schedules, list_and_show.dataset_router
    of_models = models, uploads_router
    of_users = keys, owners, sessions, audit
    for router in (*of_models, *of_jobs, options, cost_models, fleet, *of_users):
        set_default_scopes(router)
        api.include_router(router)
    app.include_router(api, prefix=API)
    app.include_router(health, responses=_error_responses(503))
    app.include_router(health, prefix=API, responses=_error_responses(503), include_in_schema=False)
    app.include_router(open_sessions, prefix=API, responses=_error_responses(403, 503))
    app.include_router(oidc, prefix=API, responses=_error_responses(401, 404, 422, 429, 503))

    @app.get(f"{API}/openapi.json", include_in_schema=False)
    async def openapi_document() -> Response:
        return Response(app.openapi_json, media_type="application/json")

    add_page(app, {"name": "Mallorn", "version": VERSION, "docs": "/docs", "api": API})
    return app


def _error_responses(*statuses: int) -> Responses:
    return {status: FAILURES[status] for status in statuses}


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await run_in_threadpool(app.state.parts.close)
