"""Latency of a client while thousands of others do not send or read: `python -m benchmarks.slow_clients`.

A coordinator runs as `mallorn serve` on loopback. For each kind of slow client, another process holds
`--clients` connections of that kind, from several loopback addresses, and opens a new one when the
coordinator closes one. Before, during and after that, a client on 127.0.0.1 asks for the list of jobs, on a
new connection each time. Medians of one run are compared.
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import socket
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psutil

from benchmarks.hosts import describe_host
from benchmarks.load.__main__ import Server
from mallorn.db.migrate import upgrade

ADDRESSES: Final = tuple(f"127.0.0.{number}" for number in range(2, 10))
WINDOW_BYTES: Final = 4096
RECONNECT_SEC: Final = 1.0
ASK_SEC: Final = 0.05  # pause between two requests of the measured client
SETTLE_SEC: Final = 3.0  # from the first connection of the slow clients to the first measurement
TIMEOUT_SEC: Final = 60.0
LARGE: Final = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
SMALL: Final = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
Act = Callable[[socket.socket], Awaitable[None]]


async def stay_idle(_client: socket.socket) -> None:
    """Send nothing."""


async def stay_silent(client: socket.socket) -> None:
    """Send one request, and nothing more on the connection that stays open."""
    await asyncio.get_running_loop().sock_sendall(client, SMALL)


async def send_slowly(client: socket.socket) -> None:
    """Send a byte of a request's head each second."""
    await asyncio.get_running_loop().sock_sendall(client, b"GET /healthz HTTP/1.1\r\nX-Slow: ")
    while True:
        await asyncio.sleep(1)
        await asyncio.get_running_loop().sock_sendall(client, b"x")


async def read_nothing(client: socket.socket) -> None:
    """Ask for large responses and read none."""
    await asyncio.get_running_loop().sock_sendall(client, LARGE * 2)
    while True:  # sending fails when the coordinator has closed the connection
        await asyncio.sleep(1)
        client.send(b"")


async def read_slowly(client: socket.socket) -> None:
    """Ask for large responses and read a byte each second."""
    await asyncio.get_running_loop().sock_sendall(client, LARGE * 2)
    while await asyncio.get_running_loop().sock_recv(client, 1):
        await asyncio.sleep(1)


KINDS: Final[dict[str, Act]] = {
    "idle": stay_idle,
    "silent": stay_silent,
    "slow up": send_slowly,
    "unread": read_nothing,
    "slow down": read_slowly,
}
READERS: Final = frozenset({"idle", "silent", "slow up"})  # kinds that see the end of a connection by reading


async def _hold(kind: str, port: int, address: str) -> None:
    """Keep one connection of this kind open; connect again when it ends."""
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as client, suppress(OSError):
            client.setblocking(False)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES)
            client.bind((address, 0))
            await loop.sock_connect(client, ("127.0.0.1", port))
            if kind in READERS:
                acting = asyncio.ensure_future(KINDS[kind](client))
                while await loop.sock_recv(client, WINDOW_BYTES):
                    pass
                acting.cancel()
            else:
                await KINDS[kind](client)
        await asyncio.sleep(RECONNECT_SEC)


async def _hold_all(kind: str, port: int, count: int) -> None:
    await asyncio.gather(*(_hold(kind, port, ADDRESSES[at % len(ADDRESSES)]) for at in range(count)))


def _attack(kind: str, port: int, count: int, ready: Connection) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ready.send(kind)
    asyncio.run(_hold_all(kind, port, count))


def _ask(port: int, seconds: float) -> list[float]:
    """Return the seconds that each request of a client took, one after the other."""
    until_sec, answer_sec = time.monotonic() + seconds, []
    while time.monotonic() < until_sec or not answer_sec:
        began_sec = time.monotonic()
        client = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SEC)
        try:
            client.request("GET", "/api/v1/jobs")
            client.getresponse().read()
        except OSError:  # it counts with the time that it took, at least a second
            answer_sec.append(max(1.0, time.monotonic() - began_sec))
            continue
        finally:
            client.close()
        answer_sec.append(time.monotonic() - began_sec)
        time.sleep(ASK_SEC)
    return answer_sec


def _figures(answer_sec: list[float]) -> dict[str, float]:
    return {
        "requests": len(answer_sec),
        "median_ms": round(1e3 * statistics.median(answer_sec), 2),
        "slowest_ms": round(1e3 * max(answer_sec), 1),
    }


def measure(server: Server, kind: str, count: int, seconds: float) -> dict[str, Any]:
    """Return a client's latencies before, during and after `count` slow clients of a kind."""
    port, process = int(server.url.rpartition(":")[2]), psutil.Process(server.process.pid)
    row: dict[str, Any] = {"kind": kind, "clients": count, "before": _figures(_ask(port, seconds))}
    receiver, sender = multiprocessing.Pipe(duplex=False)
    spawn = multiprocessing.get_context("spawn")
    attackers = spawn.Process(target=_attack, args=(kind, port, count, sender), daemon=True)
    attackers.start()
    receiver.recv()
    row["arriving"] = _figures(_ask(port, SETTLE_SEC))
    row["during"] = _figures(_ask(port, seconds))
    row |= {"open_files": process.num_fds(), "memory_mb": round(process.memory_info().rss / 1e6)}
    attackers.terminate()
    attackers.join()
    _ask(port, 1)
    row["after"] = _figures(_ask(port, seconds))
    return row


def slowdown(rows: list[dict[str, Any]]) -> float:
    """Return the largest ratio of the median latency during slow clients to that before them."""
    return max(float(row["during"]["median_ms"] / row["before"]["median_ms"]) for row in rows)


def main() -> None:
    """Measure each kind of slow client and print the largest slowdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    with TemporaryDirectory(prefix="mallorn-slow-") as folder:
        url = f"sqlite:///{folder}/mallorn.db"
        upgrade(url)
        with Server(Path(folder), url) as server:
            for kind in args.kinds:
                rows.append(row := measure(server, kind, args.clients, args.seconds))
                times = "   ".join(
                    f"{when} {row[when]['median_ms']:.1f} ms (slowest {row[when]['slowest_ms']:.0f})"
                    for when in ("before", "arriving", "during", "after")
                )
                print(f"{kind:9} {times}   {row['open_files']:,} files, {row['memory_mb']:,} MB")
    headline = slowdown(rows)
    if args.json:
        raw = {"benchmark": "slow_clients", **describe_host(), "seconds": args.seconds, "rows": rows}
        args.json.write_text(json.dumps(raw | {"headline": headline}, indent=1) + "\n")
    print(f"{args.clients:,} slow clients: a request takes {headline:.2f} times as long at most (medians)")


if __name__ == "__main__":
    main()
