"""Keeps the fleet's key in a process of its own: a device forks strangers' sessions, and never has it."""

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, Final

from mallorn.core.errors import MallornError
from mallorn.core.fleet_key import FleetKey
from workers.device.forked_process import fork

KEEPER_VARIABLE: Final = "MALLORN_KEEPER_FD"
#: What a device has no use for either.
SECRETS: Final = {
    f"MALLORN_{name}"
    for name in ("RPC_KEY", "API_KEY", "API_KEYS", "DATABASE_URL", "REDIS_URL", "OIDC_CLIENT_SECRET")
}
_PR_SET_DUMPABLE: Final = 4


class KeyAgent(FleetKey):
    """A key that another process has. This one asks it at `end`; its forks cannot."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__()
        self._end = end
        self._answers = end.makefile("r")
        os.register_at_fork(after_in_child=self._forget)

    def __bool__(self) -> bool:
        return True

    def proof(self, purpose: str, *said: str) -> str:
        """As FleetKey's."""
        return str(self._ask("proof", purpose, *said))

    def proves(self, proof: str, purpose: str, *said: str) -> bool:
        """As FleetKey's."""
        return self._ask("proves", proof, purpose, *said) is True

    def of_session(self, match_key: str) -> list[FleetKey]:
        """As FleetKey's."""
        return [FleetKey(text) for text in self._ask("of_session", match_key)]

    def _ask(self, *question: str) -> Any:
        try:
            self._end.sendall(json.dumps(question).encode() + b"\n")
            return json.loads(self._answers.readline())
        except (OSError, ValueError):
            raise MallornError(
                "the process that keeps the fleet's key is gone", hint="mallorn device"
            ) from None

    def _forget(self) -> None:
        self._answers.close()
        self._end.close()


def kept(read: Callable[[], FleetKey]) -> FleetKey:
    """The fleet's key, as its keeper has it; none where there is none.

    The first call reads it, leaves it with the keeper and begins this program again, with nothing of it in
    memory, arguments or environment.
    """
    if number := os.environ.pop(KEEPER_VARIABLE, ""):
        end = socket.socket(fileno=int(number))
        end.set_inheritable(False)
        return KeyAgent(end)
    if not (key := read()):
        return key
    ours, theirs = socket.socketpair()
    fork(lambda: _keep(key, theirs.detach()))
    ours.set_inheritable(True)
    env = {name: value for name, value in os.environ.items() if name not in SECRETS}
    sys.stdout.flush()
    env[KEEPER_VARIABLE] = str(ours.fileno())
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], env)  # noqa: S606 - ourselves again


def _keep(key: FleetKey, number: int) -> None:
    """Answer until the device is gone; nobody else of this user looks into this memory."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
    os.closerange(3, number)
    os.closerange(number + 1, os.sysconf("SC_OPEN_MAX"))
    with socket.socket(fileno=number) as end, end.makefile("r") as questions:
        for line in questions:
            name, *given = json.loads(line)
            end.sendall(json.dumps(_answer(key, name, given)).encode() + b"\n")


def _answer(key: FleetKey, name: str, given: list[str]) -> object:
    if name == "of_session":
        return [each.text for each in key.of_session(*given)]
    return key.proof(*given) if name == "proof" else key.proves(*given)
