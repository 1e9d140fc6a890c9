"""Addresses, HOST:PORT: which of them only this machine can reach, and whose service listens there."""

import ipaddress
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mallorn.core.errors import InvalidRequest, Unavailable

LAST_PORT = 65535
LISTENS: Final = "0A"


def host_and_port(text: str) -> tuple[str, int]:
    """The two halves of HOST:PORT. Raises InvalidRequest for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > LAST_PORT:
        raise InvalidRequest(f"{text!r} is not HOST:PORT", hint="write an address as 127.0.0.1:9190")
    return host, int(port)


def check_binding(host: str, has_keys: bool) -> None:
    """Raise InvalidRequest for an address that others can reach while anybody may come in without a key."""
    if not has_keys and not is_loopback(host):
        raise InvalidRequest(
            f"{host} can be reached from other machines and no API key is set",
            hint="mallorn keys create NAME --here   (or set MALLORN_API_KEYS, or --host 127.0.0.1)",
        )


def is_loopback(host: str) -> bool:
    """Whether an address or name can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class NotYours(Unavailable):
    """The service at the usual address is another user's, and was not named."""


def check_yours(url: str) -> str:
    """The URL, of this machine. Raises NotYours where another user listens there, as the kernel says."""
    uid = listener_uid(urlsplit(url).port or 80)
    if uid is None or uid == os.getuid():
        return url
    hint = f"mallorn up --port 0   (or, to use that one all the same: export MALLORN_URL={url})"
    raise NotYours(f"the service at {url} is of {_user(uid)}, not yours", hint=hint)


def listener_uid(port: int) -> int | None:
    """The user who listens at this port of 127.0.0.1; None where nobody is seen to."""
    found = {}
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # of a system that is not Linux, or has no IPv6
            for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
                _, address, _, state, _, _, _, uid, *_ = line.split()
                if state == LISTENS:
                    found[address] = int(uid)
    for address in _loopback():
        if (listening := f"{address}:{port:04X}") in found:
            return found[listening]
    return None


def _loopback() -> tuple[str, ...]:
    """What 127.0.0.1 reaches, in the kernel's writing, the most precise first."""
    one, all_v4 = (
        f"{int.from_bytes(socket.inet_aton(each), sys.byteorder):08X}"
        for each in ("127.0.0.1", "0.0.0.0")  # noqa: S104
    )
    mapped = f"{0:016X}{int.from_bytes(bytes.fromhex('0000FFFF'), sys.byteorder):08X}"
    return one, all_v4, mapped + one, mapped + all_v4, f"{0:032X}"


def _user(uid: int) -> str:
    import pwd  # which not every system has on which the client runs

    with suppress(KeyError):
        return f"user {pwd.getpwuid(uid).pw_name}"
    return f"user {uid}"
