"""Conversion of values to a pandas DataFrame, if pandas is installed."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from mallorn.core.installation import import_optional_module
from mallorn.core.values.base import Value
from mallorn.core.values.decision_log import RoundStatus
from mallorn.results.best_so_far_curve import CurvePoint

if TYPE_CHECKING:
    import pandas

HISTORY: Final = ("round", "trials", "seconds", "total_us", "task", "best_us", "searcher", "cost_model")


def frame(kind: type[Value], rows: Iterable[Value]) -> "pandas.DataFrame":
    """Return a DataFrame with a column per field. Raises MissingPackage without pandas."""
    return _frame((row.model_dump(mode="json") for row in rows), kind.model_fields)


def history_frame(points: Sequence[CurvePoint], rounds: Iterable[RoundStatus]) -> "pandas.DataFrame":
    """Return a job's best-so-far curve, with the round that ended at each point."""
    round_by_index = {row.index: row for row in rounds}
    lines: list[dict[str, object]] = []
    for point in points:
        row = None if point.round is None else round_by_index.get(point.round)
        lines.append(
            {
                "round": point.round,
                "trials": point.trials,
                "seconds": point.sec,
                "total_us": point.total_us,
                "task": row and row.task_name,
                "best_us": row and row.best_us,
                "searcher": row and row.searcher,
                "cost_model": row and row.cost_model,
            }
        )
    return _frame(lines, HISTORY)


def _frame(rows: Iterable[dict[str, object]], columns: Iterable[str]) -> "pandas.DataFrame":
    pandas = import_optional_module("pandas", "a DataFrame", "notebook")
    return pandas.DataFrame(list(rows), columns=list(columns))
