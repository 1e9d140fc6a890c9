"""Small Relax networks for tests of graph passes, and what becomes of them."""

import json
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import tvm
import tvm_ffi
from onnx import ModelProto
from tvm import relax

from mallorn.core.targets import Target
from mallorn.graphc.export.compare_with_onnxruntime import make_session
from mallorn.workers.device.target_support import find_unsupported_reason
from mallorn.workers.tvm.programs.buffer_bounds import check_schedule
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space

NHWC = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
# What a graph computes is the same without LLVM's optimizer, and compiled in a fifth of the time.
UNOPTIMIZED = tvm.target.Target({"kind": "llvm", "opt-level": 0})
HASWELL = '{"kind":"llvm","mcpu":"haswell","num-cores":2}'
# A processor that multiplies tiles: LLVM has no name for one of this level alone.
TILES = (
    '{"kind":"llvm","mattr":["+amx-tile","+amx-int8","+amx-bf16","+avx512bf16"],'
    '"mcpu":"x86-64-v4","mtriple":"x86_64-unknown-linux-gnu","num-cores":2}'
)
_FUSING = ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR")
Body = Callable[..., Any]


@cache
def runs(target: str) -> bool:
    """Whether this processor runs code for a target. A process of its own asks TVM, once per target."""
    return not find_unsupported_reason(Target(target))


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def random_of(dtype: str, *shape: int) -> Any:
    """Random numbers of a type: integers from all that it holds."""
    if np.dtype(dtype).kind == "f":
        return random(*shape).astype(dtype)
    limits = np.iinfo(dtype)
    return np.random.default_rng(sum(shape)).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def weights(*shape: int) -> Any:
    return relax.const(random(*shape))


def network(body: Body, *shapes: Any, dtype: str = "float32", functions: Any = None) -> Any:
    """Build a module of what `body(emit, *inputs)` computes from inputs of these shapes, or of these types.

    `functions` are tensor functions that the module has already.
    """
    builder = relax.BlockBuilder(functions)
    types = [each if isinstance(each, relax.TensorType) else relax.TensorType(each, dtype) for each in shapes]
    inputs = [relax.Var(f"x{at}", each) for at, each in enumerate(types)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, *inputs))
        builder.emit_func_output(result)
    return builder.get()


def convolution(data: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Any:
    """A module of one convolution with constant weights, channels last."""
    return network(lambda _, x: relax.op.nn.conv2d(x, weights(*kernel), **NHWC, **attrs), data)


def product(x: Any, factor: Any, out_dtype: str | None = None, **convolution: Any) -> Any:
    """Multiply by constant weights: a convolution in NHWC if it has arguments, else rows with a matrix."""
    w = relax.const(factor)
    if convolution:
        return relax.op.nn.conv2d(x, w, **NHWC, **convolution, out_dtype=out_dtype)
    return relax.op.matmul(x, w, out_dtype=out_dtype)


def rewritten(transform: Any, mod: Any) -> Any:
    """The module after a pass that adds tensor functions; None where it left the module alone."""
    after = transform(mod)
    return None if len(after.functions) == len(mod.functions) else after


def run(mod: Any, *arrays: Any, target: Any = UNOPTIMIZED) -> Any:
    """Return the numbers that a network computes without schedules: an array, or a list of several."""
    found = machine(mod, target)["main"](*map(tvm.runtime.tensor, arrays))
    return found.numpy() if hasattr(found, "numpy") else [each.numpy() for each in found]


def run_onnxruntime(model: ModelProto | str | Path, *arrays: Any, fused: bool = True) -> list[Any]:
    """Return onnxruntime's outputs, operator by operator unless `fused`."""
    file: Any = model.SerializeToString() if isinstance(model, ModelProto) else str(model)
    session = make_session(file, fused=fused)
    names = [each.name for each in session.get_inputs()]
    return list(session.run(None, dict(zip(names, arrays, strict=True))))


def call(mod: Any, *arrays: Any, target: Any = UNOPTIMIZED) -> Any:
    """Return what a tensor function writes into its last argument."""
    tensors = [*map(tvm.runtime.tensor, arrays)]
    linked(tvm.tirx.build(mod, target))["main"](*tensors)
    return tensors[-1].numpy()


class _Network(NamedTuple):
    """A module for a target: two are the same that are equal in structure and in constants."""

    mod: Any
    target: Any

    def __hash__(self) -> int:
        return hash((tvm_ffi.structural_hash(self.mod), str(self.target)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Network)
            and str(self.target) == str(other.target)
            and tvm_ffi.structural_equal(self.mod, other.mod)
        )


@lru_cache(maxsize=32)
def _compiled(network: _Network) -> relax.VirtualMachine:
    return relax.VirtualMachine(linked(relax.build(*network)), tvm.cpu())


def machine(mod: Any, target: Any = UNOPTIMIZED) -> relax.VirtualMachine:
    """Compile a network for this processor and load it; tests share what is compiled of equal networks."""
    return _compiled(_Network(mod, target))


def unoptimized(target: str) -> Any:
    """Return the target without LLVM's optimizer."""
    return tvm.target.Target(json.loads(target) | {"opt-level": 0})


def linked(built: Any) -> Any:
    """Write a compiled module as a shared library and load it.

    TVM's JIT takes three times as long, because it ignores `opt-level`.
    """
    with TemporaryDirectory() as folder:
        library = str(Path(folder, "built.so"))
        built.export_library(library)
        return tvm.runtime.load_module(library)


def difference(ours: Any, expected: Any) -> float:
    """The largest, of the largest number."""
    return float(np.abs(ours - expected).max() / np.abs(expected).max())


def assert_same(after: Any, mod: Any, *arrays: Any, tolerance: float = 1e-5) -> Any:
    """Assert that a pass changed a network and kept its numbers, and return the new network.

    Inputs are random unless they are given.
    """
    assert after is not None
    types = [param.ty for param in mod["main"].params]
    arrays = arrays or tuple(
        np.roll(random_of(str(each.dtype), *map(int, each.shape)), at) for at, each in enumerate(types)
    )
    ours, expected = run(after, *arrays), run(mod, *arrays)
    if tolerance:
        assert difference(ours, expected) <= tolerance
    else:
        np.testing.assert_array_equal(ours, expected)
    return after


def program(mod: Any, name: str = "") -> Any:
    """Return the only tensor function whose name begins so, as a module that MetaSchedule tunes."""
    (function,) = (
        function
        for var, function in mod.functions.items()
        if isinstance(function, tvm.tirx.PrimFunc) and var.name_hint.startswith(name)
    )
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def scheduled(mod: Any, target: str, decisions: Any = ()) -> Any:
    """Return a tensor function under its only sketch, whose decisions are the rule's unless given.
    As a record it would be taken."""
    tir = tvm.ir.save_json(mod)
    (sketch,) = design_space(tir, target)
    schedule = rebuild(tir, target, sketch.trace, list(decisions))
    assert schedule is not None
    check_schedule(schedule.mod)
    return schedule.mod


def fused(mod: Any, target: Any = HASWELL) -> Any:
    """The module with its operators lowered, and what follows a tensor function in one with it."""
    steps = [getattr(relax.transform, f"{name}")() for name in _FUSING]
    with tvm.target.Target(target), tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(steps)(mod)
