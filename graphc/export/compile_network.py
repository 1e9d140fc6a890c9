"""Apply a recipe's passes and schedules to a model, compile and run it with stock TVM only."""

import contextlib
import importlib
import platform
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import onnx
import tvm
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx, onnx_frontend
from tvm.s_tir import SBlock
from tvm.s_tir.meta_schedule.database import JSONDatabase
from tvm.s_tir.meta_schedule.relax_integration import extract_tasks
from tvm.target.codegen import llvm_get_system_triple, llvm_is_valid_cpu
from tvm.tirx import AttrStmt

from mallorn.graphc.convert import register_converters
from mallorn.graphc.core import graph_rewriting, pass_runner
from mallorn.graphc.core.graph_kind import graph_kind_of
from mallorn.graphc.core.pass_registry import Step
from mallorn.graphc.export import export_checks
from mallorn.graphc.export.compare_with_onnxruntime import errors_against_onnxruntime
from mallorn.graphc.export.cpu_features import FIELDS
from mallorn.graphc.export.library_metadata import required_cpu_features
from mallorn.graphc.fold.constants import Constants
from mallorn.graphc.onnx import fold_shapes, inline_functions, rewrite_unsupported_forms
from mallorn.graphc.onnx import read_with_weights_on_disk as onnx_file
from mallorn.graphc.onnx.bound_indices import bound_indices
from mallorn.graphc.onnx.partition_graph import cut, write_region
from mallorn.graphc.onnx.relax_modules import declare_inputs_and_outputs, load_module, module_text
from mallorn.graphc.onnx.value_ranges import value_ranges
from mallorn.graphc.ranges import dispatch_by_shape, generalize_two_lengths, reduce_weight_layouts

Shapes = Mapping[str, Sequence[int]]  # by the name of an input
Arrays = dict[str, Any]  # by the name of an input


class InputSpec(TypedDict):
    """Name, data type and shape of an input; a free dimension is a name in the shape."""

    name: str
    dtype: str
    shape: Sequence[Any]


# Imports here register TVM's intrinsics and the kind's; passes register others.
_IN_SEQUENCE = "pragma_scope"
_TVMS_INTRINSIC = re.compile(r'"Tensorize",[^]]{0,200}\], *\["(?!mallorn_)')
_NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")  # they hold a data type


def read_model(path: str) -> Any:
    """Read an ONNX file, leaving large weights on disk. Raises Refused if it is invalid."""
    try:
        declare_inputs_and_outputs(model := onnx_file.read(path))
        return model
    except (DecodeError, OSError, ValueError) as error:
        raise export_checks.Refused(
            f"{path} is not an ONNX model: {error}", "give the model that was tuned"
        ) from None


def cut_region(model: Any, shapes: Shapes, region: Mapping[str, Sequence[str]], path: str) -> tuple[Any, str]:
    """Write the part of a model for which the schedules are as an ONNX file with fixed
    shapes; return it and its path. Raises Refused if the model lacks it."""
    try:
        part = cut(model, shapes, region["inputs"], region["outputs"])
    except ValueError as error:
        raise export_checks.Refused(
            f"this is not the model that was tuned: {error}", "give the model that was tuned"
        ) from None
    write_region(part, path)
    return part, path


def input_specs(model: Any, shapes: Shapes) -> list[InputSpec]:
    """Return names, types and shapes of the inputs; `shapes` replaces declared shapes."""
    constants = {tensor.name for tensor in model.graph.initializer}
    specs: list[InputSpec] = []
    for value in model.graph.input:
        if value.name not in constants:
            kind = value.type.tensor_type
            declared = [dim.dim_value or dim.dim_param or "?" for dim in kind.shape.dim]
            dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
            specs.append({"name": value.name, "dtype": dtype, "shape": shapes.get(value.name, declared)})
    return specs


def import_models(
    read: Callable[[Any], Any],
    dynamic: Any,
    early_steps: Sequence[Step],
    target: Any,
    run: Callable[..., Any] = pass_runner.run_passes,
) -> dict[str, Any]:
    """Import the model and run `early_steps`, which precede schedules; return Relax modules.

    If a range of shapes was tuned, there is one module per tuned size (point), its key is the
    `point_suffix` of the size, and `read` imports it. Otherwise `read(None)` imports the
    only module, whose key is empty.
    """
    constants = Constants()
    points = {dispatch_by_shape.point_suffix(p): p for p in dynamic["points"]} if dynamic else {"": None}
    return {name: constants.share(run(read(point), early_steps, target)[0]) for name, point in points.items()}


def import_at_point(model: Any, manifest: Mapping[str, Any], target: Any, point: Any) -> Any:
    """Import the model at one tuned size; dimensions that grow from 0 stay variable. With
    None for the size, import it at the manifest's input shapes."""
    if point is None:
        return import_graph(model, manifest["input_shapes"], target)
    dynamic = manifest["dynamic"]
    graphs = [
        import_graph(model, dispatch_by_shape.shapes_at(dynamic["inputs"], sizes), target)
        for sizes in dispatch_by_shape.sample_sizes(dynamic["ranges"], point)
    ]
    growing = dispatch_by_shape.growing_dimensions(dynamic["ranges"])
    return generalize_two_lengths.generalize(*graphs, *growing)


def import_graph(model: Any, shapes: Shapes, target: Any) -> Any:
    """Return an ONNX model with these input shapes as a Relax module: simplified and
    converted, or loaded if it contains a module, which must be trusted or checked."""
    if module_text(model) is not None:
        return bound_indices(load_module(model, shapes))
    return convert_to_relax(simplify_onnx_model(model, shapes), shapes, target)


def simplify_onnx_model(model: Any, shapes: Shapes) -> Any:
    """Inline functions, fold shapes, unroll loops and expand operators that TVM lacks."""
    current = fold_shapes.fold(inline_functions.inline(model), shapes)
    while True:  # expanded operators may need expansion, too
        expanded = inline_functions.expand_unsupported_operators(
            rewrite_unsupported_forms.rewrite(current), patch_importer_and_list_operators()
        )
        if expanded is current:
            return current
        current = fold_shapes.fold(expanded, shapes)


def patch_importer_and_list_operators() -> frozenset[str]:
    """Patch TVM's ONNX importer, and return the names of the operators that it converts."""
    register_converters.patch_importer()
    # The importer handles `If` and `Constant` outside its table of converters.
    return frozenset((*onnx_frontend._get_convert_map(), "If", "Constant"))


def convert_to_relax(model: Any, shapes: Shapes, target: Any) -> Any:
    """Patch the importer and convert a simplified model; for CPUs, widen 16-bit floats."""
    computes_wide = target is None or target.kind.name == "llvm"
    register_converters.patch_importer()
    read = _read_as_float32 if computes_wide else onnx_file.read_tensor
    onnx_frontend.get_numpy = read
    # Pass no references to ONNX's checker, which from_onnx runs again.
    with target or contextlib.nullcontext(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wide = _widen_16bit_floats(model) if computes_wide else model
        return bound_indices(from_onnx(wide, shape_dict=shapes))


def _read_as_float32(tensor: TensorProto) -> Any:
    numbers = onnx_file.read_tensor(tensor)
    return numbers.astype("float32") if tensor.data_type in _NARROW else numbers


def _widen_16bit_floats(model: ModelProto) -> ModelProto:
    """Return the model with 16-bit floats only at its ends; unchanged if it has branches.

    CPUs are slow at adding float16 numbers or cannot, and such sums lose precision;
    onnxruntime computes in float32, too. Weights are widened when TVM reads them.
    """
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    kinds = {tensor.data_type for tensor in model.graph.initializer}
    kinds |= {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    kinds |= {attribute.i for attribute in attributes if attribute.name in _TYPE_ATTRIBUTES}
    kinds |= {attribute.t.data_type for attribute in attributes if attribute.type == AttributeProto.TENSOR}
    has_branches = any(attribute.type == AttributeProto.GRAPH for attribute in attributes)
    if kinds.isdisjoint(_NARROW) or has_branches:
        return model
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    del graph.node[:], graph.value_info[:]
    constants = {tensor.name for tensor in graph.initializer}  # old files list them as inputs, too
    ends = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    wide = {name: f"{name}/wide" for name, kind in ends.items() if kind in _NARROW and name not in constants}
    inputs = [value.name for value in graph.input if value.name in wide]
    graph.node.extend(_cast(name, wide[name], TensorProto.FLOAT) for name in inputs)
    for node in model.graph.node:  # with wide inputs, outputs and types
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [wide.get(name, name) for name in node.input]
        copy.output[:] = [wide.get(name, name) for name in node.output]
        for attribute in copy.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _NARROW:
                attribute.i = TensorProto.FLOAT
    outputs = [value.name for value in graph.output if value.name in wide and value.name not in inputs]
    graph.node.extend(_cast(wide[name], name, ends[name]) for name in outputs)
    return result


def _cast(name: str, result: str, kind: int) -> NodeProto:
    return onnx.helper.make_node("Cast", [name], [result], to=kind)


def partition_tasks_by_schedule(
    mods: Mapping[str, Any], work_dir: str, target: Any
) -> tuple[list[str], list[str]]:
    """Return the names of tasks with a schedule in `work_dir`, and of those without."""
    records = Path(work_dir, "database_tuning_record.json")
    text = records.read_text() if records.exists() else ""
    if _TVMS_INTRINSIC.search(text):
        importlib.import_module("tvm.s_tir.tensor_intrin")  # slow, so only if needed
    graph_kind_of(target).load_instructions(text)
    database = JSONDatabase(work_dir=work_dir)
    tasks: tuple[list[str], list[str]] = [], []
    for label, task in (
        (label, task) for label, mod in mods.items() for task in list_tuning_tasks(mod, target)
    ):
        record = database.query_tuning_record(task.dispatched[0], target, task.task_name)
        tasks[record is None].append(task.task_name + label)
    return tasks


def list_tuning_tasks(mod: Any, target: Any) -> list[Any]:
    """Return a module's tuning tasks, except those that have no loops of known sizes, or
    whose loops TVM fixed: those of ScatterND write where data says."""
    tasks = []
    for task in extract_tasks(mod, target):
        function = task.dispatched[0]["main"]
        blocks = graph_rewriting.collect_nodes(function, SBlock)
        marks = (str(each.attr_key) for each in graph_rewriting.collect_nodes(function, AttrStmt))
        has_loops = any(block.iter_vars for block in blocks) and _IN_SEQUENCE not in marks
        if graph_rewriting.has_static_tir_shapes(function) and has_loops:
            tasks.append(task)
    return tasks


def apply_schedules(
    mods: dict[str, object], dynamic: Any, late_steps: Sequence[Step], target: Any, work_dir: str
) -> Any:
    """Apply schedules, run the passes that follow them, and return the module to compile.

    Modules for several tuned sizes become one, with a `main` that dispatches by size. This
    empties `mods` to free memory, because each module holds all weights.
    """
    constants = Constants()
    with target, tvm.transform.PassContext(opt_level=3):
        apply = relax.transform.MetaScheduleApplyDatabase(work_dir)
        applied_mods = [apply(mods.pop(label)) for label in list(mods)]
    agreed = reduce_weight_layouts.reduce_weight_layouts(applied_mods)
    ready = [constants.share(pass_runner.run_passes(mod, late_steps, target)[0]) for mod in agreed]
    (mod,) = [dispatch_by_shape.join_points(ready, dynamic)] if dynamic else ready
    return mod


FLAGS, MOSTLY = (0, 2), 0.9  # the range of masks, and the share of ones in them


def random_inputs(model: Any, shapes: Shapes, ranges: Shapes, seed: int = 0) -> Arrays:
    """Return random inputs by name. Integers are in the ranges that the graph implies, else
    in `ranges`; nine tenths of a mask's elements are ones."""
    rng, values = np.random.default_rng(seed), {}
    if module_text(model) is None:
        ranges = {**ranges, **value_ranges(model, shapes)}
    for spec in input_specs(model, shapes):
        name, shape, dtype = spec["name"], spec["shape"], np.dtype(spec["dtype"])
        low, high = ranges.get(name, (0, 2))
        is_integer = dtype.kind in "iub"
        array = np.asarray(rng.integers(low, high, shape) if is_integer else rng.random(shape), dtype)
        if is_integer and (low, high) == FLAGS:
            array = np.asarray(rng.random(shape) < MOSTLY, dtype)
        if is_integer and array.ndim and low <= 1 < high:
            array[..., :1] = 1
        values[name] = array
    return values


def run_and_time_library(library: str, inputs: list[Any], device: Any) -> tuple[list[Any], float]:
    """Run the library; return its outputs as arrays and the median latency in milliseconds."""
    vm = relax.VirtualMachine(tvm.runtime.load_module(library), device)
    args = [tvm.runtime.tensor(value, device) for value in inputs]
    result = vm["main"](*args)
    outputs = [result] if hasattr(result, "numpy") else list(result)
    timing = vm.time_evaluator("main", device, number=3, repeat=7, min_repeat_ms=100)(*args)
    return [output.numpy() for output in outputs], timing.median * 1e3


def measure_errors_over_range(
    model: Any, path: str, manifest: Mapping[str, Any], library: str, device: Any
) -> list[tuple[float, float | None]]:
    """Return errors against onnxruntime at some sizes of a range; empty without a range."""
    dynamic = manifest["dynamic"]
    errors = []
    for sizes in dispatch_by_shape.sizes_to_check(dynamic) if dynamic else []:
        shapes = dispatch_by_shape.shapes_at(dynamic["inputs"], sizes)
        inputs = random_inputs(model, shapes, manifest["input_ranges"])
        errors.append(
            errors_against_onnxruntime(path, inputs, run_library_once(library, list(inputs.values()), device))
        )
    return errors


def run_library_once(library: str, inputs: list[Any], device: Any) -> list[Any]:
    vm = relax.VirtualMachine(tvm.runtime.load_module(library), device)
    result = vm["main"](*(tvm.runtime.tensor(value, device) for value in inputs))
    return [output.numpy() for output in ([result] if hasattr(result, "numpy") else result)]


PROCESSORS = Path("/proc/cpuinfo")


def read_target(attrs: dict[str, Any]) -> Any:
    """Return the TVM target. Raises Refused if this machine's LLVM does not know its CPU."""
    mcpu = attrs.get("mcpu")
    if mcpu and not llvm_is_valid_cpu(mcpu, attrs.get("mtriple", llvm_get_system_triple())):
        raise export_checks.Refused(
            f"the schedules are for {mcpu}; LLVM on this machine ({platform.machine()}) does not know it",
            "compile on a machine like the one that the model was tuned for",
        )
    return tvm.target.Target(attrs.get("tag", attrs))


def device_of(target: Any) -> Any:
    return tvm.runtime.device(target.get_target_device_type())


def tvm_thread_count() -> int:
    """Return the number of threads on which TVM runs a kernel."""
    return int(tvm.runtime.num_threads())


def why_it_cannot_run(target: Any) -> str:
    """Return why this machine cannot run code for the target; empty if it can."""
    if target.kind.name != "llvm":
        return "" if device_of(target).exist else f"this machine has no device for {target.kind.name}"
    triple, mcpu = (str(target.attrs.get(name, "")) for name in ("mtriple", "mcpu"))
    if triple and triple.partition("-")[0] != llvm_get_system_triple().partition("-")[0]:
        return f"the schedules are for {triple}, and this machine is {platform.machine()}"
    cpuinfo, field = PROCESSORS.read_text() if PROCESSORS.is_file() else "", FIELDS.get(platform.machine())
    lines = [line.partition(":") for line in cpuinfo.splitlines()]
    flags = next((words.split() for name, _, words in lines if name.strip() == field), [])
    lacking = [name for name in required_cpu_features(target) if flags and name not in flags]
    lack = f"the schedules are for {mcpu or triple}; this processor lacks {', '.join(lacking)}"
    return lack if lacking else ""
