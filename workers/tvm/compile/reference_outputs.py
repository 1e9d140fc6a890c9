"""Compute reference outputs with the unscheduled program, to check candidates against.

The worker's host computes them, with code that any processor can run.

A candidate is checked as a whole program, which takes weights in their original layout and
converts them inside. When it is timed, it takes weights that are already converted.

A float16 program is computed in float32. A float16 sum of n terms of both signs has an
error of about 0.15 eps sqrt(n), relative to the usual size of such sums: a random walk of
rounding errors. Sums of positive terms, and outputs of few elements, can have larger
errors, so a small program is also run in float16.
"""

from collections.abc import Sequence
from functools import partial
from math import isfinite, prod, sqrt
from typing import Any, Final

import numpy as np
import tvm
import tvm_ffi
from tvm.ir import Call, StringImm, TensorLoad
from tvm.s_tir import Schedule, ScheduleError
from tvm.tirx import Add, AttrStmt, Cast, Div, IterVar, Mul, Sub, Var

from mallorn.core.targets import parse_target
from mallorn.graphc.core.graph_rewriting import collect_nodes, largest_factor
from mallorn.graphc.export.output_errors import relative_error
from mallorn.graphc.quant.llvm_byte_dot_products import make_portable
from mallorn.graphc.quant.tile_instructions import without_tiles
from mallorn.workers.device.random_and_saved_arrays import draw_arguments, dtype_of, save_arrays
from mallorn.workers.host.linker import linker_for
from mallorn.workers.interfaces.output_comparison import Reference
from mallorn.workers.interfaces.tensor_arguments import FREE_RANGE, Arguments
from mallorn.workers.measure.compare_outputs import Array
from mallorn.workers.tvm.compile.program_evaluator import RunProgram
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.tvm.programs.compiler_kind import compiler_kind
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module
from mallorn.workers.tvm.programs.program_blocks import blocks_of, tensor_args
from mallorn.workers.tvm.records.tuning_database import apply_trace

# Blocks with fewer terms are not scheduled.
LARGE: Final = 2**22
# Tiling pays off if each input element is used in at least this many terms.
REUSE: Final = 16
# Row elements that are summed together (at least, at most), and rows that share their inputs.
LEAST_ROW, ROW, ROWS = 4, 64, 16
_FLOAT16: Final = "float16"
_FLOAT16_EPS: Final = 2.0**-10
# Roundings of intermediate results, such as the argument of an exponential.
_ROUNDINGS: Final = 4
_WALK: Final = 0.5
# Allowed error of a reordered schedule, as a multiple of the unscheduled program's error.
_OWN_ERRORS: Final = 2.0
# Terms that a processor without float16 computes in 1 s; smaller programs also run in float16.
_SMALL: Final = 2**24
# A program with one of these uses the bits of numbers, so its data types must not change.
_OF_BITS: Final = ("tirx.reinterpret", "call_llvm", "pragma_import_llvm")
_IMPORT = "pragma_import_llvm"
_DELICATE = frozenset({"tirx.sqrt", "tirx.rsqrt", "tirx.log", "tirx.log2", "tirx.log1p", "tirx.pow"})
_ROUNDING = frozenset({"tirx.nearbyint", "tirx.round"})
_POISON = 0x7F  # in all bytes of integers
# A higher opt-level compiles three times as long, and scalar loops run no faster.
HOST: Final = '{"kind":"llvm","num-cores":1,"opt-level":1}'


def replace_special_instructions(mod: Any) -> Any:
    """Replace LLVM IR for special instructions by IR that any processor can run."""

    def replace_llvm(statement: Any) -> Any:
        if statement.attr_key != _IMPORT:
            return statement
        text = StringImm(without_tiles(make_portable(str(statement.value.value))))
        return AttrStmt(statement.node, statement.attr_key, text, statement.body)

    functions = {
        var: tvm_ffi.structural_map(function, (AttrStmt, replace_llvm))
        for var, function in mod.functions.items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def build_whole_program(tir: str, trace: str, target: str, out_so: str) -> None:
    tvm_target = as_tvm_target(target)
    with compiler_kind(target).compiler(tvm_target):
        schedule = apply_trace(parse_module(tir), trace)
        library = tvm.tirx.build(schedule.mod, target=tvm_target)
    library.export_library(out_so, fcompile=linker_for(parse_target(target).toolchain))


def write_reference(
    tir: str, args: Arguments, seed: int, inputs_npz: str, expected_npz: str, run: RunProgram
) -> Reference:
    """Have `run` run the unscheduled program on random arguments; write arguments and results
    to the two files, as arrays `arg_<index>`. Return how candidates' outputs are to be compared.

    Before the run, outputs hold NaN or large integers, unless the program reads them. A
    float16 program is computed in float32, and its results are rounded to float16.
    """
    mod = parse_module(tir)
    arrays = random_arguments(mod, args, seed)
    # Outputs are filled with values that cannot be mistaken for results.
    poisoned = list(arrays)
    for index in args.outputs:
        array = arrays[index]
        if array.dtype.kind in "iu":
            filled = np.full(array.nbytes, _POISON, "uint8")
            poisoned[index] = filled.view(array.dtype).reshape(array.shape)
        elif array.dtype.kind != "b":
            poisoned[index] = np.full_like(array, np.nan)
    wide = None if rounds_to_integers(mod) else widen_float16(tir)
    results = _run(mod if wide is None else wide, poisoned, run)
    if any(np.isnan(results[index]).any() for index in args.outputs):
        poisoned, results = arrays, _run(mod if wide is None else wide, arrays, run)
    save_arrays(inputs_npz, _named(poisoned))
    save_arrays(expected_npz, _named(results))
    float16_error = 0.0
    if wide is not None:
        float16_error = rounding_error(mod)
        if sum(prod(block.extents) for block in blocks_of(mod)) <= _SMALL:
            narrow = _run(mod, poisoned, run)
            errors = [relative_error(narrow[index], results[index]) for index in args.outputs]
            float16_error += _OWN_ERRORS * max(filter(isfinite, errors), default=0.0)
    return Reference(
        list(args.outputs), reduction_length(mod), rounds_to_integers(mod), float16_error, float_range(mod)
    )


def _run(mod: Any, arrays: list[Array], run: RunProgram) -> list[Array]:
    """Run a program on this host. Arrays are converted to its data types and back."""
    dtypes = [np.dtype(dtype_of(dtype)) for _, dtype, _ in tensor_args(mod)]
    inputs = [array.astype(dtype, copy=False) for array, dtype in zip(arrays, dtypes, strict=True)]
    results = run(parallelize(replace_special_instructions(mod)), as_tvm_target(HOST), inputs)
    with np.errstate(over="ignore"):
        return [result.astype(array.dtype, copy=False) for result, array in zip(results, arrays, strict=True)]


def random_arguments(mod: Any, args: Arguments, seed: int) -> list[Array]:
    """Return random arguments: integers in their ranges, and floats in `float_range`."""
    return draw_arguments(args.with_full_byte_range().describe_draws(FREE_RANGE, float_range(mod)), seed)


def float_range(mod: Any) -> tuple[float, float]:
    """Return the range of a program's random floats: positive ones if it has roots,
    logarithms or quotients, which diverge near 0."""
    blocks = blocks_of(mod)
    divisors = (node.b for block in blocks for store in block.stores for node in collect_nodes(store, Div))
    is_delicate = any(b.calls & _DELICATE for b in blocks)
    return (0.1, 1.0) if is_delicate or any(collect_nodes(d, TensorLoad) for d in divisors) else (-1.0, 1.0)


def reduction_length(mod: Any) -> int:
    """Return the largest number of terms in the sums of any block of the program."""
    return max((block.terms for block in blocks_of(mod)), default=1)


def rounds_to_integers(mod: Any) -> bool:
    return any(block.calls & _ROUNDING for block in blocks_of(mod))


def _named(arrays: list[Array]) -> dict[str, Array]:
    return {f"arg_{index}": array for index, array in enumerate(arrays)}


def widen_float16(tir: str) -> Any | None:
    """Return the program with float32 in place of float16, or None if it has no float16 or
    works on the bits of numbers."""
    if f'"{_FLOAT16}' not in tir or any(name in tir for name in _OF_BITS):
        return None
    return tvm.ir.load_json(tir.replace(f'"{_FLOAT16}', '"float32'))


def rounding_error(mod: Any) -> float:
    """Return the relative error of float16 arithmetic; 0 if a program only moves data."""
    stores = [(block, store) for block in blocks_of(mod) for store in block.stores]
    sums = [block.terms for block, store in stores if block.reduced and _is_float16(store.value)]
    computes = any(
        _is_float16(node)
        for _, store in stores
        for kind in (Add, Sub, Mul, Div, Call, Cast)
        for node in collect_nodes(store.value, kind)
    )
    return _FLOAT16_EPS * (_ROUNDINGS * computes + _WALK * sqrt(max(sums, default=0)))


def _is_float16(value: Any) -> bool:
    return str(value.ty) == _FLOAT16


def parallelize(mod: Any) -> Any:
    """Parallelise a program's large blocks and tile large sums, so that any processor runs
    it in seconds. Results are bit-identical, as elements are summed in the same order."""
    schedule = Schedule(mod, error_render_level="none")
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        if _terms(schedule.get(block)) >= LARGE:
            try:
                _spread(schedule, block)
            except ScheduleError:  # the steps before the failing one stay; they are valid
                continue
    return schedule.mod


def _spread(schedule: Any, block: Any) -> None:
    """Parallelise a block's outer loops; tile sums that use each input often enough."""
    definition, loops = schedule.get(block), schedule.get_loops(block)
    axes = list(definition.iter_vars)
    if len(loops) != len(axes):
        return
    spatial = [loop for loop, axis in zip(loops, axes, strict=True) if axis.iter_type == IterVar.DataPar]
    reduction = [loop for loop, axis in zip(loops, axes, strict=True) if axis.iter_type == IterVar.CommReduce]
    # The axis along output rows, unless rows do not divide evenly.
    last_index = definition.writes[0].region[-1].min
    along_rows = [index for index, axis in enumerate(axes) if axis.var.same_as(last_index)]
    row = next((i for i in along_rows if largest_factor(int(axes[i].dom.extent), ROW) >= LEAST_ROW), None)
    elements_read = [prod(map(int, region.source.shape)) for region in definition.reads]
    if not reduction or row is None or _terms(definition) < REUSE * max(elements_read, default=1):
        schedule.parallel(schedule.fuse(*(spatial[:-1] or spatial)))
        return

    # Copy inputs that an output row reads with a stride, so that it reads consecutively.
    for index, region in enumerate(definition.reads):
        uses_row = [any(v.same_as(axes[row].var) for v in collect_nodes(p.min, Var)) for p in region.region]
        if any(uses_row) and not uses_row[-1]:
            copy = schedule.cache_read(block, index, "global")
            move_last = partial(_move_to_end, uses_row.index(True))
            schedule.transform_layout(copy, ("write", 0), move_last)
            schedule.parallel(schedule.get_loops(copy)[0])

    columns, column = _split(schedule, loops[row], ROW)
    spatial.remove(loops[row])
    tile, outer = [column], [columns]
    if spatial:
        longest = max(spatial, key=lambda loop: int(schedule.get(loop).extent))
        rows, inner_row = _split(schedule, longest, ROWS)
        spatial.remove(longest)
        tile, outer = [inner_row, column], [*spatial, rows, columns]
    schedule.reorder(*outer, *reduction, *tile)
    schedule.parallel(schedule.fuse(*outer))
    schedule.vectorize(column)
    schedule.decompose_reduction(block, reduction[0])


def _terms(block: Any) -> int:
    return prod(int(axis.dom.extent) for axis in block.iter_vars)


def _split(schedule: Any, loop: Any, largest: int) -> Sequence[Any]:
    factor = largest_factor(int(schedule.get(loop).extent), largest)
    split: Sequence[Any] = schedule.split(loop, [None, factor])
    return split


def _move_to_end(position: int, *indices: Any) -> list[Any]:
    return [*indices[:position], *indices[position + 1 :], indices[position]]
