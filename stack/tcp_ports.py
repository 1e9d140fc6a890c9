"""Finds free TCP ports."""

import errno
import socket
from collections.abc import Container

from mallorn.core.errors import InvalidRequest


def free_port(host: str = "127.0.0.1", excluded: Container[int] = ()) -> int:
    """Return a port on which nothing listens now and that is not in `excluded`."""
    while True:
        with socket.create_server((host, 0)) as server:
            port = int(server.getsockname()[1])
        if port not in excluded:
            return port


def check_or_choose_port(host: str, port: int) -> int:
    """Return `port`, or a free port for 0. Raises InvalidRequest if `port` cannot be bound."""
    if port == 0:
        return free_port(host)
    try:
        socket.create_server((host, port)).close()
    except PermissionError:
        raise InvalidRequest(f"port {port} needs root", hint="--port 8000") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} on {host} is taken by another program"
            raise InvalidRequest(message, hint="--port 0   (takes a free port)") from None
        raise InvalidRequest(f"cannot bind {host}: {error.strerror}", hint="--host 127.0.0.1") from None
    return port
