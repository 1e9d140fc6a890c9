"""What the child for tests declares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.typed_method import method


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Leaf:
    """One field of every kind that crosses."""

    words: str = "é"
    share: float = float("inf")
    packed: bytes = b"\x00\xff"
    missing: int | None = None
    colour: Colour = Colour.RED
    sizes: tuple[int, ...] = (1, 2)
    by_name: Mapping[str, tuple[int, int]] | None = None


class Misbehaving(Child):
    MODULE = "tests.unit.children.misbehaving"
    SPAWNS = True

    @method(limit_sec=600.0)
    def echo(self, value: int | str) -> int | str: ...

    @method(limit_sec=600.0)
    def write(self, path: str) -> None: ...

    @method(limit_sec=600.0)
    def leaves(self, given: Sequence[Leaf]) -> list[Leaf]: ...

    @method(limit_sec=600.0)
    def process(self) -> int: ...

    @method(limit_sec=600.0)
    def size(self, text: str) -> int: ...

    @method(limit_sec=600.0)
    def environment(self, name: str) -> str | None: ...

    @method(limit_sec=600.0)
    def fail(self, message: str) -> None: ...

    @method(limit_sec=600.0)
    def refuse(self) -> None: ...

    @method(limit_sec=600.0)
    def refuse_oddly(self) -> None: ...

    @method(limit_sec=600.0)
    def fill_the_disk(self) -> None: ...

    @method(limit_sec=600.0)
    def run_out_of_handles(self) -> None: ...

    @method(limit_sec=600.0)
    def eat(self, size_bytes: int) -> int: ...

    @method(limit_sec=600.0)
    def segfault(self) -> None: ...

    @method(limit_sec=600.0)
    def leave(self, code: int) -> None: ...

    @method(limit_sec=0.2)
    def loop(self) -> None: ...

    @method(limit_sec=lambda given: 50.0 + given["seconds"])
    def sleep(self, seconds: float) -> float: ...

    @method(limit_sec=600.0)
    def wait_for_file(self, path: str) -> None: ...

    @method(limit_sec=600.0)
    def allocate(self, length: int) -> int: ...

    @method(limit_sec=600.0)
    def chatter(self, length: int) -> None: ...

    @method(limit_sec=600.0)
    def lie(self) -> int:
        """It answers with a text."""

    @method(limit_sec=10.0)
    def send_raw(self, data: bytes) -> None:
        """It writes bytes of its own to the connection, and never returns."""


class NoSuchModule(Misbehaving):
    MODULE = "no.such.module"
