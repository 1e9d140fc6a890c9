"""Commands that keep the address and the key of a service, and forget them."""

import getpass
import re
import socket
import sys
import time
import webbrowser
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Annotated, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import typer

from mallorn.cli.terminal.output import KeyOption, can_ask_user, print_note, print_rows
from mallorn.client.coordinator_client import Client
from mallorn.client.logins import Login, logins_file, read_logins, write_logins
from mallorn.core.api_keys import hash_secret, new_secret
from mallorn.core.errors import MallornError, NotFound, TimedOut, Unauthorized
from mallorn.core.values.access_control import NewApiKey, Session
from mallorn.core.version import API
from mallorn.wording.format_values import Column

COLUMNS: Final = (
    Column[tuple[str, Login, str]]("SERVICE", lambda row: row[0]),
    Column[tuple[str, Login, str]]("URL", lambda row: row[1].url),
    Column[tuple[str, Login, str]]("CURRENT", lambda row: "yes" if row[0] == row[2] else ""),
)
NONE_YET: Final = "no service is kept; commands use the one on this machine.   mallorn login URL"
BROWSER_SEC: Final = 300
CLOSE: Final = b"<!doctype html><title>Mallorn</title><p>Signed in. You may close this page."


def login(
    context: typer.Context,
    service: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="A service's address, or the name of a kept one.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name to keep it by; default: its host.")] = None,
    api_key: KeyOption = None,
) -> None:
    """Keep the address and the key of a service for later commands; without URL, list the kept ones.

    The key is the given one (`--api-key -` reads it from standard input), or a new one from
    a sign-in in the browser, or is asked for.
    MALLORN_URL and MALLORN_API_KEY come before what is kept, and so does --data.
    """
    logins = read_logins()
    if service is None:
        rows = [(key, row, logins.current) for key, row in logins.services.items()]
        print_rows(rows, COLUMNS, False, NONE_YET)
        return
    if api_key == "-":
        api_key = None if can_ask_user() else sys.stdin.readline().strip()
    elif (source := context.get_parameter_source("api_key")) and source.name == "COMMANDLINE":
        print_note(
            "users of this machine can read this key in the list of processes; better: --api-key - < FILE"
        )
    url = service.rstrip("/")
    if "://" in url:
        name, entry = name or urlsplit(url).netloc, _sign_in(url, api_key)
    elif service in logins.services:
        name, entry = service, logins.services[service]
    else:
        raise NotFound(f"no service {service} is kept", hint=f"mallorn login https://{service}")
    write_logins(name, {**logins.services, name: entry})
    if (old := logins.services.get(name)) is not None and old != entry:
        _revoke(old)
    print_note(f"{name} is kept in {logins_file()}; commands use {entry.url}.   mallorn logout {name}")


def logout(
    service: Annotated[
        str | None, typer.Argument(metavar="[SERVICE]", help="A kept service's name; default: the current.")
    ] = None,
) -> None:
    """Forget a service's address and key, and revoke the key if `mallorn login` created it."""
    logins = read_logins()
    name = service or logins.current
    if name not in logins.services:
        raise NotFound(
            f"no service {name} is kept" if name else "no service is current", hint="mallorn login"
        )
    _revoke(logins.services[name])
    current = "" if name == logins.current else logins.current
    write_logins(current, {key: row for key, row in logins.services.items() if key != name})
    print_note(f"forgot {name}")


def _sign_in(url: str, api_key: str | None) -> Login:
    """Return the service with a key that it accepts. Raises Unauthorized without one."""
    with Client(url, "") as api:
        session = api.connection.value(Session, "/session")
        if not session.requires_key:
            return Login(url=url)
        if api_key is None and session.provider is not None:
            key = ask_in_browser(api)
            return Login(url=url, api_key=key.key, key_id=key.id)
    if api_key is None and can_ask_user():
        api_key = typer.prompt("API key", hide_input=True, err=True)
    if api_key is None:
        raise Unauthorized(
            f"{url} needs a key, and no identity provider is configured there to sign in with",
            hint=f"mallorn login {url} --api-key - < FILE   (its admin makes one: mallorn keys create NAME)",
        )
    with Client(url, api_key) as api:
        api.api_keys()  # raises Unauthorized for a wrong key
    return Login(url=url, api_key=api_key)


def _revoke(login: Login) -> None:
    if not login.key_id:
        return
    try:
        with Client(login.url, login.api_key) as api:
            api.revoke_key(login.key_id)
    except Unauthorized:
        print_note(f"the service has ended the key {login.key_id} already")
    except MallornError as error:
        print_note(f"the key {login.key_id} is not revoked and stays valid: {error.message}")
        print_note(f"revoke it with another key: mallorn keys revoke {login.key_id} --url {login.url}")


class _Listener(HTTPServer):
    code = ""


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    timeout = 5  # browsers open connections that they may not use

    def do_GET(self) -> None:
        """Take the code with which the service sends the browser here."""
        self.server.code = parse_qs(urlsplit(self.path).query).get("code", [""])[0] or self.server.code
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(CLOSE)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def ask_in_browser(api: Client) -> NewApiKey:
    """Sign in with the browser and return the new key. Raises TimedOut after five minutes."""
    verifier = new_secret()
    name = re.sub(r"[^A-Za-z0-9-]", "-", f"{getpass.getuser()}-{socket.gethostname()}")[:100]
    with _Listener(("127.0.0.1", 0), _Handler) as listener:
        query = {"port": listener.server_port, "challenge": hash_secret(verifier), "name": name}
        address = f"{api.connection.url}{API}/session/oidc?{urlencode(query)}"
        print_note(f"sign in with a browser on this machine: {address}")
        webbrowser.open(address)
        deadline_sec = time.monotonic() + BROWSER_SEC
        while not listener.code and (left_sec := deadline_sec - time.monotonic()) > 0:
            listener.timeout = left_sec
            listener.handle_request()
        code = listener.code
    if not code:
        hint = f"mallorn login {api.connection.url} --api-key - < FILE"
        raise TimedOut(f"nobody signed in within {BROWSER_SEC // 60} minutes", hint=hint)
    answer = api.connection.post("/session/oidc/key", {"code": code, "verifier": verifier, "name": name})
    return api.connection.parse_as(NewApiKey, answer)
