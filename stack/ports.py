"""Which ports are free."""

import errno
import socket
from collections.abc import Container

from mallorn.core.errors import InvalidRequest


def free_port(host: str = "127.0.0.1", besides: Container[int] = ()) -> int:
    """A port that nothing listens on now, and none of those that were given away before."""
    while True:
        with socket.create_server((host, 0)) as server:
            port = int(server.getsockname()[1])
        if port not in besides:
            return port


def claim_port(host: str, port: int) -> int:
    """`port` if it is free, or any for 0. Raises InvalidRequest when something listens there."""
    if port == 0:
        return free_port(host)
    try:
        socket.create_server((host, port)).close()
    except PermissionError:
        raise InvalidRequest(f"port {port} needs root", hint="--port 8000") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} on {host} is taken by another program"
            raise InvalidRequest(message, hint="--port 0 takes a free one") from None
        raise InvalidRequest(f"cannot bind {host}: {error.strerror}", hint="--host 127.0.0.1") from None
    return port
