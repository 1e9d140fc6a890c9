"""Find the node of an ONNX graph whose import computes something else than onnxruntime.

The graph is cut into parts, and each part is imported and compiled by itself with TVM's
defaults. Its inputs are what onnxruntime computed for them, so that errors of other parts
do not count. A part with wrong outputs is cut again, down to one node.

onnxruntime's float32 sums may be further from the truth than ours: a node is wrong only if
the same node in float64 does not confirm our numbers.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

from mallorn.graphc.export import compile_network as stock
from mallorn.graphc.export.compare_with_onnxruntime import compute_values, make_session, run_onnxruntime
from mallorn.graphc.export.export_checks import LARGEST_ERROR_INT8, LARGEST_SHARE_INT8, is_quantised
from mallorn.graphc.export.output_errors import worst_error
from mallorn.graphc.onnx import fold_shapes, inline_functions
from mallorn.graphc.onnx.partition_graph import TypedGraph
from mallorn.graphc.onnx.read_with_weights_on_disk import embed_weights
from mallorn.workers.interfaces.model_compiler import Shapes
from mallorn.workers.interfaces.whole_model_engine import NodeDifference
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target

PARTS: Final = 8  # parts into which a graph is cut at a time
SMALL: Final = 1024  # integers of at most this many elements may be sizes, which the importer wants constant
MOST_REFERENCE_ELEMENTS: Final = 1 << 22  # the reference is written in Python: more would take minutes
# Each node rounds like a change of its inputs in their last place; ranks and steps may change.
OWN_CHANGES: Final = 8.0
LARGEST_MAGNIFIED: Final = 1e-2
MOST_BYTES: Final = 1 << 30  # of a model that is changed and run as a whole
MODEL_KEY: Final = "node.onnx"  # in the file that keeps a node and its inputs
_NARROW: Final = (TensorProto.FLOAT, TensorProto.FLOAT16)
Array = NDArray[Any]
Arrays = dict[str, Array]
log = logging.getLogger(__name__)


def bisect_import(
    model_path: str,
    target: str,
    inputs: Sequence[str],
    input_shapes: Shapes,
    limit: float,
    case_npz: str,
    error: float,
) -> NodeDifference | None:
    if is_quantised(Path(model_path)):  # its parts may take TVM's defaults minutes
        explanation = _explain_by_rounding(model_path, inputs, error, limit)
        if explanation is not None:
            return explanation
    model = fold_shapes.fold(inline_functions.inline(stock.read_model(model_path)), input_shapes)
    embed_weights(model)
    for path in inputs:
        with np.load(path) as archive:
            search = _Search(model, dict(archive), as_tvm_target(target), limit)
        found = list(search.differences(0, len(model.graph.node)))
        if found:
            first = found[-1] if found[-1].is_import_wrong else found[0]
            search.save_case(first, Path(case_npz))
            return first
        if (difference := search.judge_simplification(model_path)) is not None:
            return difference
    return _explain_by_rounding(model_path, inputs, error, limit)


def _explain_by_rounding(
    model_path: str, inputs: Sequence[str], error: float, limit: float
) -> NodeDifference | None:
    """Return how the model magnifies rounding; None if that does not explain the error."""
    change = max(_own_change(model_path, path) for path in inputs)
    usual = LARGEST_ERROR_INT8 if is_quantised(Path(model_path)) else LARGEST_MAGNIFIED
    if not error <= min(OWN_CHANGES * change, max(usual, LARGEST_SHARE_INT8 * change)):
        return None
    return NodeDifference("", "", error, limit, own_change=change)


def _own_change(model_path: str, inputs_npz: str) -> float:
    """Return how onnxruntime's outputs change with the last place of inputs and weights,
    without fusion, or in float64."""
    with np.load(inputs_npz) as archive:
        inputs = dict(archive)
    expected = run_onnxruntime(model_path, inputs)
    moved = {name: _move_last_place(array) for name, array in inputs.items()}
    others = [run_onnxruntime(model_path, moved), run_onnxruntime(model_path, inputs, fused=False)]
    embed_weights(model := inline_functions.inline(stock.read_model(model_path)))
    if model.ByteSize() <= MOST_BYTES:
        wide = _compute_in_float64(model, inputs, by_reference=False)
        others += [each for each in (wide, _compute_with_moved_weights(model, inputs)) if each]
    return max(worst_error(outputs, expected) for outputs in others)


def _compute_with_moved_weights(model: ModelProto, inputs: Arrays) -> list[Array] | None:
    """Change the model's weights in their last place and run it; None if a size follows from them."""
    for tensor in model.graph.initializer:
        array = _move_last_place(numpy_helper.to_array(tensor))
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    try:
        return _run_in_onnxruntime(model, inputs)
    except Exception as error:
        log.info("onnxruntime cannot compute with moved weights: %s", error)
        return None


def _move_last_place(array: Array) -> Array:
    return np.nextafter(array, -array) if array.dtype.kind == "f" else array


class _Search:
    def __init__(self, model: ModelProto, inputs: Arrays, target: Any, limit: float) -> None:
        self._model, self._inputs, self._target, self._limit = model, inputs, target, limit
        self._nodes = list(model.graph.node)
        results = (name for node in self._nodes for name in node.output if name)
        known = {value.name: value.type for value in model.graph.value_info}
        self._graph = TypedGraph(model, {name: TypeProto() for name in (*inputs, *results)} | known)
        self._cases: dict[str, tuple[ModelProto, Arrays]] = {}  # by the name of a node

    def differences(self, start: int, stop: int) -> Iterator[NodeDifference]:
        """Yield a part's nodes with other outputs, in order, until the first wrong one."""
        step = max(1, -(-(stop - start) // PARTS))
        for first in range(start, stop, step):
            last = min(first + step, stop)
            if not self._differs(first, last):
                continue
            found = [self._judge(first)] if last - first == 1 else list(self.differences(first, last))
            for difference in (each for each in found if each is not None):
                yield difference
                if difference.is_import_wrong:
                    return

    def judge_simplification(self, model_path: str) -> NodeDifference | None:
        """Compare the graph whose nodes were imported with the file, both in onnxruntime."""
        values = compute_values(self._model, self._inputs, [value.name for value in self._model.graph.output])
        expected = run_onnxruntime(model_path, self._inputs, fused=False)
        error = worst_error([values[value.name] for value in self._model.graph.output], expected)
        return None if error <= self._limit else NodeDifference("", "", error, self._limit)

    def save_case(self, difference: NodeDifference, path: Path) -> None:
        """Keep the node as a model and its inputs in a file, for a report."""
        model, inputs = self._cases[difference.node]
        content = np.frombuffer(model.SerializeToString(), "uint8")
        np.savez(path, **{**inputs, MODEL_KEY: content})  # type: ignore[arg-type]

    def _differs(self, start: int, stop: int) -> bool:
        """Return whether a part's outputs differ; True if the part cannot be imported by itself."""
        try:
            part, inputs, expected = self._cut(start, stop)
            return not worst_error(self._run(part, inputs), expected) <= self._limit
        except Exception as error:  # TVM raises many classes; smaller parts tell more
            log.info("nodes %d to %d cannot be compared: %s", start, stop, error)
            return True

    def _judge(self, index: int) -> NodeDifference | None:
        """Run one node alone; None if it agrees or cannot be compared."""
        node = self._nodes[index]
        try:
            part, inputs, _ = self._cut(index, index + 1)
            expected = _run_in_onnxruntime(part, inputs)
            outputs = self._run(part, inputs)
        except Exception as error:
            log.info("node %r (%s) cannot be compared: %s", node.name, node.op_type, error)
            return None
        difference = worst_error(outputs, expected)
        if difference <= self._limit:
            return None
        truth = _compute_in_float64(part, inputs)
        name = node.name or node.output[0]
        self._cases[name] = part, inputs
        errors = [worst_error(numbers, truth) for numbers in (outputs, expected)] if truth else []
        return NodeDifference(name, node.op_type, difference, self._limit, *errors)

    def _cut(self, start: int, stop: int) -> tuple[ModelProto, Arrays, list[Array]]:
        """Return nodes as a model, and onnxruntime's numbers for its inputs and outputs."""
        part = self._graph.model_of(self._nodes[start:stop])
        names = [[value.name for value in ends] for ends in (part.graph.input, part.graph.output)]
        values = compute_values(self._model, self._inputs, [*names[0], *names[1]])
        for value in part.graph.input:
            array = values[value.name]
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            value.type.CopyFrom(helper.make_tensor_type_proto(kind, array.shape))
        return part, {name: values[name] for name in names[0]}, [values[name] for name in names[1]]

    def _run(self, part: ModelProto, inputs: Arrays) -> list[Array]:
        """Import, compile and run a part with TVM's defaults. Where the importer wants
        sizes as constants, its small integer inputs become constants."""
        try:
            return self._run_part(part, inputs)
        except Exception:
            sizes = {name: a for name, a in inputs.items() if a.dtype.kind in "iub" and a.size <= SMALL}
            if not sizes:
                raise
        bound = deepcopy(part)
        bound.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in sizes.items())
        for value in [each for each in bound.graph.input if each.name in sizes]:
            bound.graph.input.remove(value)
        return self._run_part(bound, {name: a for name, a in inputs.items() if name not in sizes})

    def _run_part(self, part: ModelProto, inputs: Arrays) -> list[Array]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            executable = tvm.compile(stock.import_graph(part, {}, self._target), self._target)
        device = tvm.runtime.device(self._target.get_target_device_type())
        result = relax.VirtualMachine(executable, device)["main"](
            *(tvm.runtime.tensor(np.ascontiguousarray(array), device) for array in inputs.values())
        )
        return [each.numpy() for each in ([result] if hasattr(result, "numpy") else list(result))]


def _run_in_onnxruntime(model: ModelProto, inputs: Arrays) -> list[Array]:
    session = make_session(model.SerializeToString(), fused=False)
    return list(session.run(None, {value.name: inputs[value.name] for value in session.get_inputs()}))


def _compute_in_float64(part: ModelProto, inputs: Arrays, by_reference: bool = True) -> list[Array] | None:
    """Return a part's outputs computed in float64 by onnxruntime or, if it has no such
    kernel, by ONNX's reference; None if neither can."""
    _widen_tensors(wide := deepcopy(part))
    arrays = {name: a.astype("float64") if a.dtype.kind == "f" else a for name, a in inputs.items()}
    try:
        return _run_in_onnxruntime(wide, arrays)
    except Exception as error:
        log.info("onnxruntime cannot compute in float64: %s", error)
    if not by_reference or sum(array.size for array in arrays.values()) > MOST_REFERENCE_ELEMENTS:
        return None
    try:
        return [np.asarray(each) for each in ReferenceEvaluator(wide).run(None, arrays)]
    except Exception as error:
        log.info("ONNX's reference cannot compute in float64: %s", error)
        return None


def _widen_tensors(model: ModelProto) -> None:
    """Replace float32 and float16 by float64 at the ends, in weights, constants and casts."""
    graph = model.graph
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    tensors = [*graph.initializer, *(a.t for node in graph.node for a in node.attribute if a.HasField("t"))]
    for tensor in tensors:
        if tensor.data_type in _NARROW:
            wide = numpy_helper.to_array(tensor).astype("float64")
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    for attribute in (a for node in graph.node for a in node.attribute):
        if attribute.name in ("to", "dtype") and attribute.i in _NARROW:
            attribute.i = TensorProto.DOUBLE
