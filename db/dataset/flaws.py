"""Validates imported measurements: a bad row is counted and skipped."""

import math
from collections.abc import Mapping
from typing import Final

from db.dataset.schema import Row
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind

NEEDED: Final = (
    *("dataset", "row", "kind", "workload", "target", "sketch", "decisions"),
    *("slot", "outcome", "run_us", "origin", "created_at"),
)
CONTEXT: Final = ("host_class", "tvm_version", "threads", "evaluator")
KINDS: Final = frozenset({MeasurementKind.TRIAL, MeasurementKind.FINISH})
OUTCOMES: Final = frozenset(Outcome)


def flaw(row: Row, widths: Mapping[str, int]) -> str | None:
    """What is wrong, in a word or two; None for a good row. `widths`: decisions of each sketch."""
    if any(row[name] is None for name in NEEDED):
        return "missing value"
    if row["kind"] not in KINDS or row["outcome"] not in OUTCOMES:
        return "unknown word"
    if len(row["decisions"]) != widths[row["sketch"]] or None in row["decisions"]:
        return "decisions"
    if any("\0" in row[name] for name in ("error", "origin", "dataset") if row[name]):
        return "text"
    if not math.isfinite(row["created_at"]) or row["created_at"] <= 0:
        return "date"
    return _flaw_of_times(row)


def _flaw_of_times(row: Row) -> str | None:
    ok = row["outcome"] == Outcome.OK
    time_us = row["latency_us"] if row["bound_us"] is None else row["bound_us"]
    if ok != bool(row["run_us"]) or ok != (time_us is not None):
        return "times of a failure" if not ok else "no times"
    if ok and any(row[name] is None for name in CONTEXT):
        return "no measuring context"
    times_us = [time_us, *row["run_us"]] if ok else []
    return None if all(time is not None and 0 < time < math.inf for time in times_us) else "latency"
