"""Addresses as people write them, HOST:PORT, and which of them only this machine can reach."""

import ipaddress

from mallorn.core.errors import InvalidRequest

LAST_PORT = 65535


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
