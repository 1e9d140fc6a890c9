"""Many rows, column by column: cheaper to read than a value a row, and what arrays and files are made of."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Self

from sqlalchemy import Result


class Columns:
    """Rows of a query by the names of its columns."""

    def __init__(self, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        self._columns: dict[str, tuple[Any, ...]] = dict(zip(names, columns, strict=True))

    @classmethod
    def of(cls, result: Result[Any]) -> Self:
        return cls(list(result.keys()), result)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        return self._columns[name]

    def rows(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Some columns, row by row."""
        return zip(*(self._columns[name] for name in names), strict=True)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All rows of some parts that have the same columns."""
        names = list(parts[0]._columns)
        return cls(names, chain.from_iterable(part.rows(*names) for part in parts))
