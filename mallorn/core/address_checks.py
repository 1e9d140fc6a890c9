"""Checks of HOST:PORT addresses: whether they are loopback, and which user listens there."""

import ipaddress
import os
from urllib.parse import urlsplit

from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.core.socket_users import listener_uid, user_name

LAST_PORT = 65535


def host_and_port(text: str) -> tuple[str, int]:
    """Split HOST:PORT. Raises InvalidRequest if the text has another form."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > LAST_PORT:
        raise InvalidRequest(f"{text!r} is not HOST:PORT", hint="write an address as 127.0.0.1:9190")
    return host, int(port)


def check_binding(host: str, has_keys: bool) -> None:
    """Raise InvalidRequest if other machines can reach the host and no API key is required."""
    if not has_keys and not is_loopback(host):
        raise InvalidRequest(
            f"{host} can be reached from other machines and no API key is set",
            hint="mallorn keys create NAME --here   (or set MALLORN_API_KEYS, or --host 127.0.0.1)",
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address or host name."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class NotYours(Unavailable):
    """The service at the usual address is another user's, and was not named."""


def check_yours(url: str) -> str:
    """Return a loopback URL. Raises NotYours if another user's process listens there."""
    uid = listener_uid(urlsplit(url).port or 80)
    if uid is None or uid == os.getuid():
        return url
    hint = (
        f"mallorn up --port 0   (or, with a key from its owner: export MALLORN_URL={url} MALLORN_API_KEY=KEY)"
    )
    raise NotYours(f"the service at {url} is of {user_name(uid)}, not yours", hint=hint)
