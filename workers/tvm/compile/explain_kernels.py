"""Find causes of slow kernels that no schedule removes: scalar calls and strided loads."""

import re
import tempfile
from collections.abc import Collection
from itertools import pairwise
from typing import Any, Final

import tvm
from tvm import relax
from tvm.ir import TensorLoad
from tvm.ir.instrument import pass_instrument
from tvm.tirx import For, ForKind, PrimFunc, Var

from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.graphc.core.graph_rewriting import collect_nodes, has_static_tir_shapes
from mallorn.graphc.export import compile_network as stock
from mallorn.graphc.export.code_generation import compile_to_library
from mallorn.workers.device.model_kernel_times import PREPACKED
from mallorn.workers.features.assembly_parser import functions_of
from mallorn.workers.features.instruction_sets import Does, instruction_set
from mallorn.workers.interfaces.model_compiler import Shapes
from mallorn.workers.tvm.compile.compile_model import import_networks
from mallorn.workers.tvm.network.graph_recipes import recipe_steps
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.tvm.programs.loop_nests import RELAID, row_major_offset
from mallorn.workers.tvm.records.tuning_database import read_database

UNROLLED: Final = 8  # largest trip count of loops that compilers unroll
LOOKED_AT: Final = 16  # iterations of a loop that are compared
WITHOUT_BLOCKS: Final = "s_tir.LowerOpaqueBlock"  # after this pass a function is only loops
# Excludes TVM's functions, moves of memory, and the registers of indirect calls.
_LIBRARY: Final = re.compile(r"(?!tvm|mem|[xw]\d+$)[a-z][a-z0-9_]*$")


def explain_kernels(
    model_path: str,
    schedules_dir: str,
    target: str,
    recipe: StoredRecipe,
    input_shapes: Shapes,
    dynamic: Dynamic | None,
) -> dict[str, list[str]]:
    steps_after = recipe_steps(recipe)["after"]
    tvm_target = as_tvm_target(target)
    ranges = None if dynamic is None else dynamic.model_dump(mode="json")
    mods, _, _ = import_networks(model_path, target, recipe, input_shapes, dynamic)
    # Indices of each function's constant arguments, as far as the recipe marked them.
    weights = {
        var.name_hint: [int(number) for number in function.attrs[RELAID]]
        for mod in mods.values()
        for var, function in mod.functions.items()
        if RELAID in (function.attrs or ())
    }
    with tempfile.TemporaryDirectory() as scratch:
        read_database(schedules_dir, target, scratch)
        mod = stock.apply_schedules(mods, ranges, steps_after, tvm_target, scratch)
    remarks = {}
    for var, kernel in relax.transform.DeadCodeElimination()(mod).functions.items():
        if isinstance(kernel, PrimFunc):
            name = var.name_hint.removesuffix(PREPACKED)
            remarks[name] = explain(kernel, tvm_target, weights.get(name, ()))
    return remarks


def explain(kernel: Any, target: Any, weights: Collection[int]) -> list[str]:
    """Compile a kernel and return remarks on it. `weights` are its constant arguments."""
    loops = _Loops()
    mod = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    code = compile_to_library(mod, target, [loops]).inspect_source("asm")
    remarks = {
        "scalar calls: ": library_calls(target.kind.name, code),
        "strided loads of ": strided_loads(loops.function, weights),
    }
    return [text + ", ".join(names) for text, names in remarks.items() if names]


@pass_instrument
class _Loops:
    """TVM pass instrument that keeps the function once it is lowered to loops."""

    function: Any

    def run_after_pass(self, module: Any, info: Any) -> None:
        if str(info.name) == WITHOUT_BLOCKS:
            (self.function,) = module.functions.values()


def library_calls(target_kind: str, text: str) -> list[str]:
    """Return the names of the library functions, such as ``expf``, that assembly calls."""
    isa, functions = instruction_set(target_kind, text), functions_of(text)
    instructions = [instruction for function in functions for instruction in function.instructions]
    jumps = [
        instruction for instruction in instructions if isa.kind_of(instruction) in (Does.CALL, Does.JUMP)
    ]
    names = {jump.operands.partition("@")[0] for jump in jumps}
    return sorted(filter(_LIBRARY.match, names - {function.name for function in functions}))


def strided_loads(function: Any, weights: Collection[int]) -> list[str]:
    """Return the roles (weight, input, intermediate) of buffers that the hottest loop reads
    with a stride. `weights` are the positions of constant arguments."""
    loop = _hottest(function) if has_static_tir_shapes(function) else None
    loads = [] if loop is None else collect_nodes(loop.body, TensorLoad)
    strided = {hash(load.source) for load in loads if _is_strided(load, loop)}
    arguments = enumerate(map(hash, function.params))
    roles = {name: "weight" if number in weights else "input" for number, name in arguments}
    return sorted({roles.get(source, "intermediate") for source in strided})


def _hottest(function: Any) -> Any | None:
    """Return the most frequent of the loops whose inner loops are all unrolled."""
    loops = [loop for loop in collect_nodes(function, For) if _is_not_unrolled(loop)]
    runs: dict[int, int] = {}
    for loop in loops:
        for inner in (loop, *collect_nodes(loop.body, For)):
            runs[hash(inner)] = runs.get(hash(inner), 1) * int(loop.extent)
    innermost = (loop for loop in loops if not any(map(_is_not_unrolled, collect_nodes(loop.body, For))))
    return max(innermost, key=lambda loop: runs[hash(loop)], default=None)


def _is_not_unrolled(loop: Any) -> bool:
    return bool(loop.kind == ForKind.VECTORIZED) or int(loop.extent) > UNROLLED


def _is_strided(load: Any, loop: Any) -> bool:
    loop_var = hash(loop.loop_var)
    inner_loads = [inner for index in load.indices for inner in collect_nodes(index, TensorLoad)]
    if any(hash(var) == loop_var for inner in inner_loads for var in collect_nodes(inner, Var)):
        return True
    iterations = range(min(int(loop.extent), LOOKED_AT))
    offsets = [row_major_offset(load.source, load.indices, {loop_var: iteration}) for iteration in iterations]
    steps = [abs(right - left) for left, right in pairwise(offsets)]
    return sum(step > 1 for step in steps) > len(steps) / 2
