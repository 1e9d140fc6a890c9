"""The table of the corpus: by half and by file."""

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from statistics import fmean
from typing import Any, Final

from benchmarks.shipped.corpus import HALVES
from benchmarks.shipped.run import COMES_IN, ONNXRUNTIME, OPENVINO, OURS, PROVIDER

RIGHT: Final = 1e-3  # relative error beside onnxruntime; a quantised file may differ as onnxruntime does
OWN_ERRORS: Final = 1.5  # so many times onnxruntime's own error, for quantised files
# What a job says if each node is right: onnxruntime is off, or its own outputs change as much.
EXPLAINED: Final = ("onnxruntime rounds node", "the model magnifies rounding")
SLOWER: Final = 1.05
PAIRS: Final = ((ONNXRUNTIME, OURS), (ONNXRUNTIME, PROVIDER), (OPENVINO, PROVIDER))

Row = Mapping[str, Any]


def is_right(row: Row, name: str = PROVIDER) -> bool | None:
    """Return whether the outputs of one way to call our code are onnxruntime's, or the job explains
    the difference; None if nothing was compared."""
    if name in row.get("failures", ()):
        return False
    if (error := row.get("errors", {}).get(name)) is None:
        return None
    steps = row.get("finish", {}).get("skipped_steps", ())
    is_explained = any(step["reason"].startswith(EXPLAINED) for step in steps)
    return bool(is_explained or error <= max(RIGHT, OWN_ERRORS * (row.get("own_error") or 0.0)))


def ratio(row: Row, rival: str, ours: str = PROVIDER) -> float | None:
    """Return our time over the rival's; None if one was not timed or the outputs are wrong."""
    times = row.get("latency_us", {})
    if not is_right(row, ours) or ours not in times or rival not in times:
        return None
    return float(times[ours]["median"] / times[rival]["median"])


def lines(rows: Mapping[str, Row], half_by_name: Mapping[str, str]) -> list[str]:
    """Return the tables as Markdown."""
    text = [
        "| half | files | come in | right | Session over onnxruntime | provider over onnxruntime "
        "| provider over OpenVINO | slower by 5 % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for half in HALVES:
        of_half = [row for name, row in rows.items() if half_by_name[name] == half]
        if of_half:
            text.append(_summary(half, of_half))
    text += [
        "",
        "| file | half | outcome | error | Session over onnxruntime | provider over onnxruntime "
        "| provider over OpenVINO | job, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    text += [_line(name, half_by_name[name], row) for name, row in sorted(rows.items())]
    return text


def _summary(half: str, rows: Sequence[Row]) -> str:
    sessions, ratios, others = (
        [value for row in rows if (value := ratio(row, rival, ours)) is not None] for rival, ours in PAIRS
    )
    cells = (
        half,
        len(rows),
        sum(row["outcome"] == COMES_IN for row in rows),
        sum(is_right(row) is True for row in rows),
        *(geometric_mean(each) for each in (sessions, ratios, others)),
        sum(value > SLOWER for value in ratios),
    )
    return f"| {' | '.join(map(str, cells))} |"


def geometric_mean(values: Iterable[float]) -> str:
    """Return the geometric mean with two places, or nothing for no value."""
    logs = [log(value) for value in values]
    return f"{exp(fmean(logs)):.2f}" if logs else ""


def _line(name: str, half: str, row: Row) -> str:
    errors = max(row.get("errors", {}).values(), default=None)
    failures = [f"{way} fails: {words[:80]}" for way, words in row.get("failures", {}).items()]
    verdict = "" if errors is None else f"{errors:.1e}" + ("" if is_right(row) else " wrong")
    cells = (
        name,
        half,
        row["outcome"] + (f": {row['message'][:120]}" if row["message"] else ""),
        "; ".join([verdict, *failures]),
        *(f"{value:.2f}" if (value := ratio(row, *pair)) else "" for pair in PAIRS),
        row["seconds"],
    )
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"
