"""What the unscheduled program answers, to check candidates against.

A candidate is checked as the whole program: weights come in their original layout and are re-laid inside,
whereas the one that is timed is handed re-laid weights.
"""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from workers.tvm.accuracy import Array
from workers.tvm.anatomy import blocks_of, extent
from workers.tvm.arguments import FREE_RANGE
from workers.tvm.database import replay
from workers.tvm.linker import link_shared
from workers.tvm.passes import TargetLike, as_tvm_target
from workers.tvm.programs import parse_module

_HOST = '{"kind":"llvm","num-cores":1}'


def build_whole(tir: str, trace: str, target: TargetLike, out_so: str) -> str:
    """Build a scheduled program (its full trace) that takes its arguments as the unscheduled one does."""
    return _build(replay(parse_module(tir), trace).mod, target, out_so)


def reference(
    tir: str, args: dict[str, Any], seed: int, inputs_npz: str, expected_npz: str
) -> dict[str, Any]:
    """Write random arguments and what the unscheduled program makes of them, each array as `arg_<index>`.

    Returns what `compare` asks for besides: the outputs' indices and how many terms the longest sum has.
    """
    mod = parse_module(tir)
    arrays = random_arguments(args, seed)
    np.savez(inputs_npz, **_named(arrays))
    library = _build(mod, _HOST, str(Path(expected_npz).with_suffix(".so")))
    np.savez(expected_npz, **_named(call(library, arrays)))
    return {"outputs": list(args["outputs"]), "reduction_len": reduction_length(mod)}


def call(library: str, arrays: list[Array]) -> list[Array]:
    """Run a library of one program on this host; all arguments as they are afterwards."""
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.runtime.load_module(library)["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


def random_arguments(args: dict[str, Any], seed: int) -> list[Array]:
    """Seeded arguments: integers in their ranges; floats in (0.1, 1), where roots and quotients are tame."""
    rng = np.random.default_rng(seed)
    ranges = args.get("ranges", {})
    return [_random(rng, spec, ranges.get(str(i), FREE_RANGE)) for i, spec in enumerate(args["args"])]


def reduction_length(mod: Any) -> int:
    """The most terms any block of the program sums up."""
    return max((prod(map(extent, block.reduced)) for block in blocks_of(mod)), default=1)


def _random(rng: np.random.Generator, spec: list[Any], limits: list[int]) -> Array:
    _, dtype, shape = spec
    if dtype.startswith(("int", "uint", "bool")):
        return rng.integers(limits[0], limits[1], shape).astype(dtype)
    return rng.uniform(0.1, 1.0, shape).astype(dtype)


def _build(mod: Any, target: TargetLike, out_so: str) -> str:
    library = tvm.tirx.build(mod, target=as_tvm_target(target))
    library.export_library(out_so, fcompile=link_shared)
    return out_so


def _named(arrays: list[Array]) -> dict[str, Any]:
    return {f"arg_{index}": array for index, array in enumerate(arrays)}
