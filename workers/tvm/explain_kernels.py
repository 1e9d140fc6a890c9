"""What holds kernels back whatever their tiles: library calls, loads of single numbers."""

import re
import tempfile
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any, Final

import tvm
from tvm import relax
from tvm.ir import TensorLoad
from tvm.ir.instrument import pass_instrument
from tvm.tirx import For, ForKind, PrimFunc, Var

from graphc.core.graph_rewriting import collect, static
from graphc.export import compile_network as stock
from graphc.export.code_generation import compiled
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import StoredRecipe
from workers.device.model_kernel_times import PREPACKED
from workers.features.assembly_parser import functions_of
from workers.features.instruction_sets import Does, instruction_set
from workers.interfaces.model_compiler import Shapes
from workers.tvm.compile_model import networks
from workers.tvm.graph_recipes import recipe_of, step_json
from workers.tvm.loop_nests import RELAID, place
from workers.tvm.run_recipe_passes import as_tvm_target
from workers.tvm.tuning_database import read_database

UNROLLED: Final = 8  # runs of a loop up to which compilers unroll it, and look at the one around it
LOOKED_AT: Final = 16  # of a loop's runs
WITHOUT_BLOCKS: Final = "s_tir.LowerOpaqueBlock"  # the pass after which a function is loops alone
# A call through a register has its name for an operand.
_LIBRARY: Final = re.compile(r"(?!tvm|mem|[xw]\d+$)[a-z][a-z0-9_]*$")


def explain_kernels(
    model_path: str,
    schedules_dir: str,
    target: str,
    recipe: StoredRecipe,
    input_shapes: Shapes,
    dynamic: Dynamic | None,
) -> dict[str, list[str]]:
    """What each task's code tells. Raises as `compile_model` does."""
    after = [step_json(step) for step in recipe_of(recipe).after]
    tvm_target = as_tvm_target(target)
    told = None if dynamic is None else dynamic.model_dump(mode="json")
    mods, _, _ = networks(model_path, target, recipe, input_shapes, dynamic)
    weights = dict(known for mod in mods.values() for known in _weights(mod))
    with tempfile.TemporaryDirectory() as scratch:
        read_database(schedules_dir, target, scratch)
        mod = stock.scheduled(mods, told, after, tvm_target, scratch)
    found = {}
    for var, kernel in relax.transform.DeadCodeElimination()(mod).functions.items():
        if isinstance(kernel, PrimFunc):
            name = var.name_hint.removesuffix(PREPACKED)
            found[name] = explain(kernel, tvm_target, weights.get(name, ()))
    return found


def explain(kernel: Any, target: Any, weights: Collection[int]) -> list[str]:
    """The same for one kernel, of whose arguments some are constant."""
    loops = _Loops()
    mod = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
    code = compiled(mod, target, [loops]).inspect_source("asm")
    found = {
        "scalar calls: ": library_calls(target.kind.name, code),
        "strided loads of ": strided_loads(loops.function, weights),
    }
    return [what + ", ".join(names) for what, names in found.items() if names]


@pass_instrument
class _Loops:
    """Keeps a function while it is lowered."""

    function: Any

    def run_after_pass(self, module: Any, info: Any) -> None:
        if str(info.name) == WITHOUT_BLOCKS:
            (self.function,) = module.functions.values()


def _weights(mod: Any) -> Iterator[tuple[str, Collection[int]]]:
    """The constant arguments of functions, where the recipe marked them."""
    for var, function in mod.functions.items():
        if RELAID in (function.attrs or ()):
            yield var.name_hint, [int(number) for number in function.attrs[RELAID]]


def library_calls(target_kind: str, text: str) -> list[str]:
    """The functions by name, without those that move memory."""
    isa, functions = instruction_set(target_kind, text), functions_of(text)
    code = [each for function in functions for each in function.instructions]
    jumps = [each for each in code if isa.does(each) in (Does.CALL, Does.JUMP)]
    names = {each.operands.partition("@")[0] for each in jumps}
    own = {function.name for function in functions}
    return sorted(filter(_LIBRARY.match, names - own))


def strided_loads(function: Any, weights: Collection[int]) -> list[str]:
    """What the loop that runs most does not read one after another: weight, input, intermediate.

    `function` is loops without blocks; `weights` are its constant arguments, by number.
    """
    loop = _hottest(function) if static(function) else None
    loads = [] if loop is None else collect(loop.body, TensorLoad)
    apart = {hash(load.source) for load in loads if _lies_apart(load, loop)}
    arguments = enumerate(map(hash, function.params))
    roles = {name: "weight" if number in weights else "input" for number, name in arguments}
    return sorted({roles.get(source, "intermediate") for source in apart})


def _hottest(function: Any) -> Any | None:
    """Of the loops that hold none but small ones, that whose body is run most."""
    loops = [loop for loop in collect(function, For) if _stays(loop)]
    runs: dict[int, int] = {}
    for loop in loops:
        for inner in (loop, *collect(loop.body, For)):
            runs[hash(inner)] = runs.get(hash(inner), 1) * int(loop.extent)
    innermost = (loop for loop in loops if not any(map(_stays, collect(loop.body, For))))
    return max(innermost, key=lambda loop: runs[hash(loop)], default=None)


def _stays(loop: Any) -> bool:
    return bool(loop.kind == ForKind.VECTORIZED) or int(loop.extent) > UNROLLED


def _lies_apart(load: Any, loop: Any) -> bool:
    varies = hash(loop.loop_var)
    looked_up = [inner for index in load.indices for inner in collect(index, TensorLoad)]
    if any(hash(var) == varies for inner in looked_up for var in collect(inner, Var)):
        return True
    runs = range(min(int(loop.extent), LOOKED_AT))
    places = [place(load.source, load.indices, {varies: run}) for run in runs]
    steps = [abs(there - here) for here, there in pairwise(places)]
    return sum(step > 1 for step in steps) > len(steps) / 2
