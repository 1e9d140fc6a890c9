"""Build the libraries of the assertions: python -m benchmarks.gpu.special TARGET FOLDER"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.device import CUDA

ADD: Final = "add.so"  # adds two vectors of ADD_COUNT numbers
ADD_COUNT: Final = 1 << 16
OTHER_ARCH: Final = "add-other-architecture.so"
FAR: Final = "write-far.so"  # writes far beyond the end of its only buffer
ENDLESS: Final = "endless.so"  # never returns
MODEL: Final = "model.so"  # a network of two layers
SAVED: Final = "model.npz"  # the model's `input` and right `output`
_ANOTHER: Final = "sm_80"  # its device code does not run on other GPU generations
_THREADS: Final = 32
ENDLESS_COUNT: Final = _THREADS
_SIZE: Final = 64
_FAR: Final = f"""
@T.prim_func(s_tir=True)
def main(c: T.handle):
    T.func_attr({{"global_symbol": "main"}})
    C = T.match_buffer(c, (1,), "float32")
    for i in T.serial({_THREADS}):
        with T.sblock("c"):
            v = T.axis.spatial({_THREADS}, i)
            C[T.int64({1 << 40}) + T.Cast("int64", v)] = T.float32(1)
"""


_ENDLESS: Final = f"""
@T.prim_func
def main(c: T.handle):
    T.func_attr({{"global_symbol": "main"}})
    C = T.match_buffer(c, ({_THREADS},), "float32")
    for i in LOOP:
        C[i] = T.float32(0)
        while C[i] < T.float32(1e30):
            C[i] = C[i] + T.float32(1)
"""


def main() -> None:
    """Build the libraries that the folder lacks."""
    target, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    attrs = json.loads(target)
    on_gpu = attrs["kind"] == CUDA
    scheduled = _on_threads if on_gpu else lambda module: module
    libraries = {
        ADD: (lambda: scheduled(_add()), target),
        FAR: (lambda: scheduled(_parsed(_FAR)), target),
        ENDLESS: (lambda: _endless(on_gpu), target),
    }
    if on_gpu:
        other_target = json.dumps(attrs | {"arch": _ANOTHER}, sort_keys=True)
        libraries[OTHER_ARCH] = lambda: scheduled(_add()), other_target
    for name, (program, library_target) in libraries.items():
        if not (folder / name).exists():
            from benchmarks.gpu.candidates import compile_to

            compile_to(program(), library_target, folder / name)
    if not (folder / MODEL).exists():
        _build_model(folder, target)


def _on_threads(module: Any) -> Any:
    """Return the module with its only loop bound to GPU threads."""
    from tvm.s_tir import Schedule

    schedule = Schedule(module)
    blocks, threads = schedule.split(schedule.get_loops(schedule.get_sblock("c"))[0], [None, _THREADS])
    schedule.bind(blocks, "blockIdx.x")
    schedule.bind(threads, "threadIdx.x")
    return schedule.mod


def _add() -> Any:
    import tvm
    from tvm import te

    a, b = (te.placeholder((ADD_COUNT,), "float32", name) for name in ("a", "b"))
    function = te.create_prim_func([a, b, te.compute((ADD_COUNT,), lambda i: a[i] + b[i], "c")])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def _endless(on_gpu: bool) -> Any:
    """Return an endless program: it counts to a number that float32 cannot reach by ones."""
    loop = f'T.thread_binding({_THREADS}, "threadIdx.x")' if on_gpu else f"T.serial({_THREADS})"
    return _parsed(_ENDLESS.replace("LOOP", loop))


def _parsed(source: str) -> Any:
    import tvm
    from tvm.script import from_source

    return tvm.IRModule({"main": from_source(source)})


def _build_model(folder: Path, target: str) -> None:
    """Build a network of two layers; for CUDA, it runs as a CUDA graph."""
    import numpy as np
    from tvm import relax
    from tvm.s_tir import dlight

    from mallorn.graphc.export.code_generation import compilation_context
    from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target

    rng = np.random.default_rng(0)
    x, first, second = (rng.standard_normal((_SIZE, _SIZE)).astype("float32") for _ in range(3))
    builder, entry = relax.BlockBuilder(), relax.Var("x", relax.TensorType(x.shape, "float32"))
    with builder.function("main", [entry]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.nn.relu(relax.op.matmul(entry, relax.const(first))))
            hidden = builder.emit(relax.op.nn.relu(relax.op.matmul(hidden, relax.const(second))))
            result = builder.emit_output(relax.op.exp(relax.op.tanh(hidden)))
        builder.emit_func_output(result)
    parsed = parse_tvm_target(target)
    on_gpu = parsed.kind.name == CUDA
    with _compiler(parsed), parsed:
        module = relax.get_pipeline("zero")(builder.get())
        if on_gpu:
            module = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul(), dlight.gpu.Fallback())(module)
        with compilation_context(parsed, **{"relax.backend.use_cuda_graph": on_gpu}):
            executable = relax.build(module, parsed, relax_pipeline=relax.get_pipeline("default_build"))
    executable.export_library(str(folder / MODEL))
    output = np.exp(np.tanh(np.maximum(np.maximum(x @ first, 0) @ second, 0)))
    np.savez(folder / SAVED, input=x, output=output)


@contextmanager
def _compiler(target: Any) -> Iterator[None]:
    """In the block, let TVM compile CUDA kernels to device code; do nothing for a CPU."""
    if target.kind.name != CUDA:
        yield
        return
    from mallorn.kinds.cuda.compiler.compile_cuda import collect_device_code

    with collect_device_code(target):
        yield


if __name__ == "__main__":
    main()
