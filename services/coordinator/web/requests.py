"""Says in the log which job a request was about."""

import re
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from mallorn.core.logs import about

JOB: Final = re.compile(r"/jobs/(?P<job>[0-9a-f]+)(/|$)")


class JobLogMiddleware:
    """Middleware around all routes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = JOB.search(scope["path"]) if scope["type"] == "http" else None
        with about(**(found.groupdict() if found else {})):
            await self._app(scope, receive, send)
