"""A child for tests: it answers, fails, crashes and hangs on request."""

import ctypes
import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mallorn.core.errors import InvalidModel
from mallorn.workers.subprocesses.serve_calls import serve
from mallorn.workers.subprocesses.typed_method import collect_handlers
from tests.unit.children.faces import Leaf, Misbehaving


def echo(value: int | str) -> int | str:
    return value


def leaves(given: list[Leaf]) -> list[Leaf]:
    assert all(isinstance(leaf, Leaf) for leaf in given)
    return given


def write(path: str) -> None:
    with open(path, "w") as file:
        file.write("mine")


def process() -> int:
    return os.getpid()


def size(text: str) -> int:
    return len(text)


def environment(name: str) -> str | None:
    return os.environ.get(name)


def fail(message: str) -> None:
    raise KeyError(message)


def refuse() -> None:
    raise InvalidModel("no such operator", hint="use another", suggest={"input_shapes": {"x": [1, 3]}})


class OwnRefusal(InvalidModel):
    """Known to this module only."""


def refuse_oddly() -> None:
    raise OwnRefusal


def fill_the_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "a.so")


def run_out_of_handles() -> None:
    raise RuntimeError("LLVM: cannot open a.o: Too many open files")


def eat(size_bytes: int) -> int:
    return len(bytearray(os.urandom(1) * size_bytes))


def segfault() -> None:
    print("last words", flush=True)
    ctypes.string_at(0)


def leave(code: int) -> None:
    os._exit(code)


def loop() -> None:
    while True:
        pass


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def wait_for_file(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)


def allocate(length: int) -> int:
    return len(bytearray(length))


def chatter(length: int) -> None:
    sys.stdout.write("x" * length)
    sys.stdout.flush()
    subprocess.run(["echo", "from a grandchild"], check=True)


def lie() -> int:
    answer: Any = "a text"
    return answer


def send_raw(data: bytes) -> None:
    (number,) = (int(fd.name) for fd in Path("/proc/self/fd").iterdir() if _is_socket(fd))
    os.set_blocking(number, True)
    while data:
        data = data[os.write(number, data) :]
    loop()


def _is_socket(fd: Path) -> bool:
    try:
        return os.readlink(fd).startswith("socket:")
    except FileNotFoundError:
        return False


METHODS = (
    allocate,
    chatter,
    echo,
    environment,
    fail,
    fill_the_disk,
    run_out_of_handles,
    eat,
    leave,
    leaves,
    lie,
    loop,
    process,
    refuse,
    refuse_oddly,
    segfault,
    send_raw,
    size,
    sleep,
    wait_for_file,
    write,
)

if __name__ == "__main__":
    serve(
        collect_handlers(
            Misbehaving, *(getattr(Misbehaving, each.__name__).make_handler(each) for each in METHODS)
        )
    )
