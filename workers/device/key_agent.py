"""Keeps the fleet's key in its own process: a device forks sessions with untrusted code.

python -P -m mallorn.workers.device.key_agent SOCKET KEY

Both are file descriptors: the socket for the device's requests, and the pipe with the key.
"""

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, Final

from mallorn.core.errors import MallornError
from mallorn.core.fleet_key import FleetKey
from mallorn.core.host_id import HOST_FOLDER_VARIABLE
from mallorn.core.installation import python_path
from mallorn.workers.device.forked_process import fork
from mallorn.workers.sandbox.sandbox import allowed_environment

KEEPER_VARIABLE: Final = "MALLORN_KEEPER_FD"
#: Environment variables that a device reads.
DEVICE_VARIABLES: Final = (
    *("MALLORN_TRACKER", "MALLORN_SANDBOX", "MALLORN_LOG_FORMAT", "MALLORN_LOG_LEVEL"),
    HOST_FOLDER_VARIABLE,
)
_PR_SET_DUMPABLE: Final = 4


class KeyAgent(FleetKey):
    """A fleet key that another process holds, behind socket `end`: forks cannot read it."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__()
        self._end = end
        self._answers = end.makefile("r")
        os.register_at_fork(after_in_child=self._answers.close)
        os.register_at_fork(after_in_child=end.close)

    def __bool__(self) -> bool:
        return True

    def sign(self, purpose: str, *words: str) -> str:
        return str(self._request_answer("sign", purpose, *words))

    def is_valid_signature(self, proof: str, purpose: str, *words: str) -> bool:
        return self._request_answer("is_valid_signature", proof, purpose, *words) is True

    def derive_session_keys(self, match_key: str) -> list[FleetKey]:
        return [FleetKey(text) for text in self._request_answer("derive_session_keys", match_key)]

    def _request_answer(self, *question: str) -> Any:
        try:
            self._end.sendall(json.dumps(question).encode() + b"\n")
            return json.loads(self._answers.readline())
        except (OSError, ValueError):
            raise MallornError(
                "the process that holds the fleet's key has ended", hint="mallorn device"
            ) from None


def isolate_fleet_key(read: Callable[[], FleetKey]) -> FleetKey:
    """Return a KeyAgent for the fleet's key, or an empty key if the fleet has none.

    The first call reads the key, passes it to a keeper process and executes this program
    again with no secret in memory, arguments or environment: only variables on the
    allow-list are passed on.
    """
    if (number := os.environ.pop(KEEPER_VARIABLE, None)) is not None:
        if not number:
            return FleetKey()
        end = socket.socket(fileno=int(number))
        end.set_inheritable(False)
        return KeyAgent(end)
    env = allowed_environment() | {name: os.environ[name] for name in DEVICE_VARIABLES if name in os.environ}
    env[KEEPER_VARIABLE] = ""
    if key := read():
        device_end, keeper_end = socket.socketpair()
        key_fd, writing_fd = os.pipe()
        os.write(writing_fd, key.text.encode())
        os.close(writing_fd)

        def exec_key_keeper() -> None:
            numbers = (keeper_end.detach(), key_fd)
            for number in numbers:
                os.set_inheritable(number, True)
            keeper_env = allowed_environment()
            keeper_env["PYTHONPATH"] = python_path(keeper_env)
            command = [sys.executable, "-P", "-m", __name__, *map(str, numbers)]
            os.execve(sys.executable, command, keeper_env)  # noqa: S606 - this module

        fork(exec_key_keeper)
        os.close(key_fd)
        device_end.set_inheritable(True)
        env[KEEPER_VARIABLE] = str(device_end.fileno())
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], env)  # noqa: S606 - this program


def _serve_requests(number: int, key_fd: int) -> None:
    """Answer requests until the device is gone; no other process can read this memory."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
    with os.fdopen(key_fd) as pipe:
        key = FleetKey(pipe.read())
    with socket.socket(fileno=number) as end, end.makefile("r") as questions:
        for line in questions:
            name, *arguments = json.loads(line)
            answer: object
            if name == "derive_session_keys":
                answer = [session_key.text for session_key in key.derive_session_keys(*arguments)]
            else:
                answer = key.sign(*arguments) if name == "sign" else key.is_valid_signature(*arguments)
            end.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    _serve_requests(*map(int, sys.argv[1:]))
