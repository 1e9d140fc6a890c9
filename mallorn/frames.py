"""Rows as a pandas DataFrame, where pandas is installed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mallorn.core.extras import need
from mallorn.results.history import Point

if TYPE_CHECKING:
    import pandas

HISTORY: Final = ("round", "trials", "seconds", "total_us", "task", "found_us", "searcher", "cost_model")
Row = dict[str, Any]


def frame(rows: Iterable[Row], columns: Iterable[str] | None = None) -> "pandas.DataFrame":
    """One line a row; `columns` gives an empty frame its columns. Raises MissingPackage."""
    pandas = need("pandas", "a DataFrame", "notebook")
    return pandas.DataFrame(list(rows), columns=None if columns is None else list(columns))


def history_frame(points: Sequence[Point], rounds: Iterable[Row]) -> "pandas.DataFrame":
    """A job's way down, with the round that ended at each point."""
    ended = {row["index"]: row for row in rounds}
    return frame((_step(point, ended.get(point.round, {})) for point in points), HISTORY)


def _step(point: Point, row: Mapping[str, Any]) -> Row:
    return {
        "round": point.round,
        "trials": point.trials,
        "seconds": point.sec,
        "total_us": point.total_us,
        "task": row.get("task_name"),
        **{name: row.get(name) for name in ("found_us", "searcher", "cost_model")},
    }
