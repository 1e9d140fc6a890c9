"""Serves the built web page at `/` and the API's page at `/docs`, or how to build them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import Scope

from mallorn.report.style_and_csp import STYLE_HASH

STATIC: Final = Path(__file__).parent / "static"
# No external and no inline content: the page needs only this server's files and API.
# A report that the page opens from memory has the same policy, so its style's hash is here.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' {STYLE_HASH}",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
# The style sheet of Swagger UI contains its icons.
DOCS_POLICY: Final = POLICY.replace("img-src 'self'", "img-src 'self' data:")
ASSET_HEADERS: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
NOT_BUILT: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Mallorn</title>
<h1>Mallorn is running, but its page is not built yet</h1>
<p>To build the page, run this in the source directory. It uses an installed Node 20.19 or newer,
otherwise Node from PyPI:</p>
<pre>make page</pre>
<p>Then reload this page; no restart is needed. Until then, use the command line
(<code>mallorn jobs</code>, <code>mallorn watch JOB</code>) or the API
(<a href="api/v1/openapi.json">openapi.json</a>).</p>
</html>
"""


class Assets(StaticFiles):
    """Static files that a browser may cache for ever."""

    async def check_config(self) -> None:
        """Accept a missing directory; requests for unbuilt assets get a 404."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file with its cache headers. Raises HTTPException 404 if it is missing."""
        response = await super().get_response(path, scope)
        response.headers.update(ASSET_HEADERS)
        return response


def add_page(app: FastAPI, about: Mapping[str, object], directory: Path = STATIC) -> None:
    """Serve the page at `/`, and `about` as JSON to clients that do not accept HTML; `/docs`."""

    def respond(name: str, policy: str) -> Response:
        # A page refers to assets by name, and an asset's name changes with its content.
        headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache", "Vary": "Accept"}
        if not (directory / name).is_file():
            return HTMLResponse(NOT_BUILT, headers=headers)
        return FileResponse(directory / name, media_type="text/html", headers=headers)

    def page(request: Request) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            return JSONResponse(about, headers={"Vary": "Accept"})
        return respond("index.html", POLICY)

    def docs() -> Response:
        return respond("docs.html", DOCS_POLICY)

    def icon() -> Response:
        file = directory / "icon.svg"
        if not file.is_file():
            return Response(status_code=404)
        return FileResponse(file, media_type="image/svg+xml")

    app.add_api_route("/", page, include_in_schema=False, response_model=None)
    app.add_api_route("/docs", docs, include_in_schema=False, response_model=None)
    app.add_api_route("/icon.svg", icon, include_in_schema=False, response_model=None)
    app.mount("/assets", Assets(directory=directory / "assets", check_dir=False))
