"""Addresses as people write them: HOST:PORT."""

from mallorn.core.errors import InvalidRequest

LAST_PORT = 65535


def host_and_port(text: str) -> tuple[str, int]:
    """The two halves of HOST:PORT. Raises InvalidRequest for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > LAST_PORT:
        raise InvalidRequest(f"{text!r} is not HOST:PORT", hint="write an address as 127.0.0.1:9190")
    return host, int(port)
