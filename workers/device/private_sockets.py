"""Opens the listening sockets of trackers and devices, never on public addresses."""

import errno
import ipaddress
import socket

from mallorn.core.errors import InvalidRequest
from mallorn.core.fleet_key import HINT, FleetKey


def private_address(host: str) -> str:
    """Return a host's IP address. Raises InvalidRequest unless it is private or loopback."""
    try:
        resolved = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise InvalidRequest(f"cannot resolve {host!r}: {error}", hint="--host 127.0.0.1") from None
    address = ipaddress.ip_address(resolved)
    address = getattr(address, "ipv4_mapped", None) or address  # as in ::ffff:0.0.0.0
    if address.is_unspecified or address.is_global or address.is_multicast:
        raise InvalidRequest(
            f"{host} is public: whoever reaches it could run any program here",
            hint="--host 127.0.0.1, or the address of one private interface",
        )
    return str(address)


def is_own_address(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as end:
        try:
            end.bind((address, 0))
        except OSError:
            return False
    return True


def listen(host: str, ports: range, key: FleetKey) -> socket.socket:
    """Return a socket that listens on the first free port of `ports`; 0 lets the kernel
    choose. Raises InvalidRequest if the address is public, if it is not loopback and there
    is no key, or if all ports are busy."""
    address = private_address(host)
    if not key and not ipaddress.ip_address(address).is_loopback:
        raise InvalidRequest(f"{host} is open to other machines, and the fleet has no key", hint=HINT)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in ports:
        try:
            return socket.create_server((address, port), family=family, backlog=16)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise InvalidRequest(
                    f"cannot listen on {host}:{port}: {error.strerror}",
                    hint="give an address of this machine, and a port above 1023",
                ) from None
    busy_ports = (
        f"port {ports.start} is" if len(ports) == 1 else f"ports {ports.start} to {ports.stop - 1} are"
    )
    raise InvalidRequest(
        f"{busy_ports} in use on {host}",
        hint=f"choose another with --port, or see: ss -ltnp | grep {ports.start}",
    )
