"""Run onnxruntime and measure the error of outputs against it.

For quantised models the reference runs without fused operators, because those round as well.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from mallorn.graphc.export.export_checks import ROUNDING, is_quantised, rounds_its_inputs
from mallorn.graphc.export.output_errors import Array, worst_error


def errors_against_onnxruntime(
    path: str, inputs: Mapping[str, object], outputs: list[Any]
) -> tuple[float, float | None]:
    """Return the outputs' error, and that of onnxruntime's fused operators if quantised."""
    expected_outputs = run_onnxruntime(path, inputs)
    if not is_quantised(Path(path)):
        return worst_error(outputs, expected_outputs), None
    truth = run_onnxruntime(path, inputs, fused=False)
    return worst_error(outputs, truth), worst_error(expected_outputs, truth)


def run_onnxruntime(path: str, inputs: Mapping[str, object], *, fused: bool = True) -> list[Any]:
    """Return onnxruntime's outputs, optimised if `fused`, else operator by operator, without those
    that quantise their inputs when they run."""
    model = path if fused or not rounds_its_inputs(Path(path)) else _without_rounding(path)
    return list(make_session(model, fused=fused).run(None, dict(inputs)))


def _without_rounding(path: str) -> bytes:
    import onnx

    from mallorn.graphc.onnx.rewrite_unsupported_forms import rewrite

    return bytes(rewrite(onnx.load(path), {name.decode() for name in ROUNDING}).SerializeToString())


def compute_values(model: Any, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """Return what onnxruntime computes for values of a graph, not only its outputs."""
    from onnx import ValueInfoProto

    values = {name: inputs[name] for name in names if name in inputs}
    wanted = [name for name in dict.fromkeys(names) if name not in values]
    if wanted:
        whole = deepcopy(model)
        del whole.graph.value_info[:], whole.graph.output[:]
        whole.graph.output.extend(ValueInfoProto(name=name) for name in wanted)
        session = make_session(whole.SerializeToString(), fused=False)
        used = {value.name: inputs[value.name] for value in session.get_inputs()}
        values |= zip(wanted, session.run(None, used), strict=True)
    return values


def make_session(path: str | bytes, threads: int = 0, *, fused: bool = True) -> Any:
    """Return an onnxruntime session for a model, a file or its bytes; 0 threads lets onnxruntime choose."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # errors are raised anyway
    if not fused:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
