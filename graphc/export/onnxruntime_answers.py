"""What onnxruntime answers, and how far outputs are from that.

Of a quantised file the truth is what its operators give one by one: onnxruntime's fused ones are off, too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphc.export.export_checks import is_quantised


def errors_beside(path: str, inputs: Mapping[str, object], outputs: list[Any]) -> tuple[float, float | None]:
    """How far outputs are from the truth, and, of a quantised file, how far onnxruntime's own are."""
    theirs = answers(path, inputs)
    if not is_quantised(Path(path)):
        return worst_error(outputs, theirs), None
    truth = answers(path, inputs, fused=False)
    return worst_error(outputs, truth), worst_error(theirs, truth)


def answers(path: str, inputs: Mapping[str, object], *, fused: bool = True) -> list[Any]:
    """What onnxruntime computes, as fast as it can or operator by operator."""
    return list(session(path, fused=fused).run(None, dict(inputs)))


def session(path: str, threads: int = 0, *, fused: bool = True) -> Any:
    """onnxruntime with a model; without a number, it has as many threads as it likes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what fails is raised
    if not fused:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def worst_error(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The relative error of the worst output."""
    return max(relative_error(*pair) for pair in zip(ours, theirs, strict=True))


def relative_error(ours: Any, theirs: Any) -> float:
    """Largest difference over the largest value; infinite where shapes or what is finite differ."""
    left, right = np.asarray(ours, "float64"), np.asarray(theirs, "float64")
    finite = np.isfinite(right)
    if left.shape != right.shape or not np.array_equal(np.isfinite(left), finite):
        return float("inf")
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        return float("inf")
    difference = np.abs(left[finite] - right[finite]).max(initial=0.0)
    return float(difference / max(np.abs(right[finite]).max(initial=0.0), 1e-30))
