"""Finished runs as JSON lines: each is stored as it ends, and a second start finds it there."""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from mallorn.core.errors import InvalidRequest

Row = dict[str, Any]


class Done(Protocol):
    """What became of a cell: a dataclass."""

    @property
    def cell(self) -> Hashable:
        """What was run."""


F = TypeVar("F", bound=Done)


class CellFile(Generic[F]):
    """What is finished, by its cell; without a path it is kept for this run only.

    Raises InvalidRequest for a file with lines of another kind. A last line that was cut short as it was
    written is taken away, and its cell made again.
    """

    def __init__(self, path: Path | None, parse: Callable[[Row], F]) -> None:
        self._path = path
        self._done: dict[Hashable, F] = {done.cell: done for done in _read(path, parse)} if path else {}

    def __contains__(self, cell: Hashable) -> bool:
        return cell in self._done

    def add(self, done: F) -> None:
        fields: Any = done
        self._done[done.cell] = done
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as lines:
                lines.write(json.dumps(asdict(fields)) + "\n")

    def all(self) -> list[F]:
        """All that are finished."""
        return list(self._done.values())

    def of(self, cells: Iterable[Hashable]) -> list[F]:
        """Those of some cells that are finished."""
        return [self._done[cell] for cell in cells if cell in self._done]


def _read(path: Path, parse: Callable[[Row], F]) -> Iterator[F]:
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            yield parse(json.loads(line))
        except (KeyError, TypeError, ValueError):
            raise InvalidRequest(f"line {number} of {path} is no cell", hint=f"rm {path}") from None
