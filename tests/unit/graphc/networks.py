"""Small Relax networks for tests of graph passes, and what becomes of them."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tvm
from tvm import relax

from mallorn.core.targets import Target
from mallorn.workers.device.target_support import find_unsupported_reason

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


def network(body: Body, *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    """A module of what `body` computes from inputs of these shapes; it gets what emits steps, too."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, *inputs))
        builder.emit_func_output(result)
    return builder.get()


def convolution(data: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Any:
    """A module of one convolution with constant weights, channels last."""
    return network(lambda _, x: relax.op.nn.conv2d(x, weights(*kernel), **NHWC, **attrs), data)


def rewritten(transform: Any, mod: Any) -> Any | None:
    """The module after a pass that adds tensor functions; None where it left the module alone."""
    after = transform(mod)
    return None if len(after.functions) == len(mod.functions) else after


def run(mod: Any, *arrays: Any) -> Any:
    """The numbers, without schedules."""
    return machine(mod)["main"](*map(tvm.runtime.tensor, arrays)).numpy()


def machine(mod: Any, target: Any = UNOPTIMIZED) -> relax.VirtualMachine:
    """Compile a network for this processor and load it."""
    return relax.VirtualMachine(linked(relax.build(mod, target)), tvm.cpu())


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


def program(mod: Any, name: str) -> Any:
    """The only tensor function whose name begins so, as a module that MetaSchedule tunes."""
    (function,) = (mod[var] for var in mod.functions if var.name_hint.startswith(name))
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def fused(mod: Any, target: Any = HASWELL) -> Any:
    """The module with its operators lowered, and what follows a tensor function in one with it."""
    steps = [getattr(relax.transform, f"{name}")() for name in _FUSING]
    with tvm.target.Target(target), tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(steps)(mod)
