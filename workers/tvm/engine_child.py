"""Main module of the child process that loads one model in one engine and times it."""

import ctypes
import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from importlib.metadata import distribution
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.errors import Unavailable
from mallorn.core.targets import Target
from mallorn.graphc.export.compare_with_onnxruntime import make_session, run_onnxruntime
from mallorn.graphc.export.export_checks import is_quantised
from mallorn.graphc.export.output_errors import worst_error
from mallorn.workers.device.detect_host import physical_cores
from mallorn.workers.device.device_kind import device_kind
from mallorn.workers.host.code_digest import refuse_if_code_changed
from mallorn.workers.interfaces.whole_model_engine import Engine, LoadedEngine, NodeDifference
from mallorn.workers.subprocesses.serve_calls import serve
from mallorn.workers.subprocesses.typed_method import collect_handlers
from mallorn.workers.tvm.sessions.time_probes import time_probes_here

WARM_UP_CALLS: Final = 2
ROUGH_CALLS: Final = 20
LONG_CALL_US: Final = 100_000.0  # one call of a slow model warms it well enough
_POOLED: Final = 2  # the allocator of `mallorn_runtime`
_methods: dict[str, Callable[..., Any]] = {}  # run, outputs and kernels of the loaded model


def load_library(library: str, target: str, inputs_npz: str) -> LoadedEngine:
    import tvm
    from tvm import relax

    from mallorn.workers.device.model_kernel_times import Kernels, clock_of

    # Only the kind is parsed: parsing a target's CPU features takes long.
    kind, hardware = json.loads(target)["kind"], device_kind(Target(target))
    device = tvm.runtime.device(tvm.target.Target(kind).get_target_device_type())
    module = tvm.runtime.load_module(library)
    main = relax.VirtualMachine(module, device)["main"]

    def read(path: str) -> list[Any]:
        return [tvm.runtime.tensor(array, device) for array in _arrays(path).values()]

    args = read(inputs_npz)

    def run(arguments: Sequence[Any] = args) -> list[Any]:
        result = main(*arguments)
        device.sync()
        return list(result) if isinstance(result, tvm.ir.Array | list | tuple) else [result]

    def kernels() -> Kernels:
        hardware.enable_graphs(0)
        machine = relax.VirtualMachine(module, device)
        hardware.enable_graphs(1)
        return Kernels(
            machine.set_instrument, partial(machine["main"], *args), clock_of(hardware, device.sync)
        )

    def outputs_for(path: str) -> list[Any]:
        return [output.numpy() for output in run(read(path))]

    _methods.update(run=run, outputs=_run_for_outputs, outputs_for=outputs_for, kernels=cache(kernels))
    return LoadedEngine("tvm", tvm.__version__, tvm.runtime.num_threads())


def load_onnxruntime(
    model_path: str, inputs_npz: str, threads: int, other_inputs: Sequence[str] = ()
) -> LoadedEngine:
    if find_spec("onnxruntime") is None:
        raise Unavailable("onnxruntime is not installed", hint="pip install onnxruntime")
    import onnxruntime

    counts = {threads, min(threads, physical_cores())}
    if len(counts) > 1:  # one session at a time: a model may be large
        threads = min(counts, key=lambda n: _rough_us(_create_onnxruntime_runner(model_path, inputs_npz, n)))
    _methods.update(run=_create_onnxruntime_runner(model_path, inputs_npz, threads), outputs=_run_for_outputs)
    own_error = None
    _methods["outputs_for"] = lambda path: run_onnxruntime(model_path, _arrays(path))
    if is_quantised(Path(model_path)):
        draws = {path: _arrays(path) for path in (inputs_npz, *other_inputs)}
        truths = {path: run_onnxruntime(model_path, arrays, fused=False) for path, arrays in draws.items()}
        own_error = worst_error(_run_for_outputs(), truths[inputs_npz])
        for path in other_inputs:
            own_error = max(own_error, worst_error(run_onnxruntime(model_path, draws[path]), truths[path]))
        _methods.update(outputs=lambda: truths[inputs_npz], outputs_for=truths.__getitem__)
    return LoadedEngine("onnxruntime", onnxruntime.__version__, threads, own_error)


def _create_onnxruntime_runner(model_path: str, inputs_npz: str, threads: int) -> Callable[[], list[Any]]:
    inference = make_session(model_path, threads)
    binding = inference.io_binding()
    for name, array in _arrays(inputs_npz).items():
        binding.bind_cpu_input(name, array)
    for output in inference.get_outputs():
        binding.bind_output(output.name)

    def run() -> list[Any]:
        inference.run_with_iobinding(binding)
        return list(binding.get_outputs())

    return run


def _rough_us(run: Callable[[], list[Any]]) -> float:
    first_us = _timed_us(run)
    return min(_timed_us(run) for _ in range(1 if first_us > LONG_CALL_US else ROUGH_CALLS))


def time_bursts(bursts: int, number: int) -> list[float]:
    run = _methods["run"]
    for _ in range(WARM_UP_CALLS):
        if _timed_us(run) > LONG_CALL_US:
            break
    return [median(_timed_us(run) for _ in range(number)) for _ in range(bursts)]


def time_kernels(seconds: float) -> dict[str, float]:
    return dict(_methods["kernels"]().measure_times_us(seconds))


def save_outputs(outputs_npz: str, other_inputs: Sequence[str] = ()) -> int:
    results = list(_methods["outputs"]())
    others = chain.from_iterable(_methods["outputs_for"](path) for path in other_inputs)
    return _save(outputs_npz, [*results, *others]) // (1 + len(other_inputs))


def bisect_import(*arguments: Any, **named: Any) -> NodeDifference | None:
    # Imported here because other engines need no compiler.
    from mallorn.workers.tvm.compile.bisect_import import bisect_import as bisect

    return bisect(*arguments, **named)


def _save(path: str, results: Iterable[Any]) -> int:
    arrays = {f"output_{index}": array for index, array in enumerate(results)}
    np.savez(path, **arrays)
    return len(arrays)


def run_alone(library: str, inputs: Sequence[str], outputs_npz: str) -> int:
    import tvm_ffi

    folder = Path(str(distribution("apache-tvm").locate_file("tvm")))
    ctypes.CDLL(str(folder / "lib" / "libtvm_runtime.so"), ctypes.RTLD_GLOBAL)
    cpu = tvm_ffi.device("cpu", 0)
    allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
    machine = tvm_ffi.load_module(library)["vm_load_executable"]()
    machine["vm_initialization"](int(cpu.dlpack_device_type()), 0, _POOLED)
    results: list[Any] = []
    for path in inputs:
        args = []
        for array in _arrays(path).values():
            args.append(allocate(tvm_ffi.Shape(array.shape), tvm_ffi.dtype(str(array.dtype)), cpu, None))
            np.from_dlpack(args[-1])[...] = array
        result = machine["main"](*args)
        results += [result] if isinstance(result, tvm_ffi.Tensor) else list(result)
    return _save(outputs_npz, map(np.from_dlpack, results)) // len(inputs)


def _run_for_outputs() -> list[Any]:
    return [output.numpy() for output in _methods["run"]()]


def _timed_us(run: Callable[[], list[Any]]) -> float:
    started_sec = time.perf_counter()
    run()
    return (time.perf_counter() - started_sec) * 1e6


def _arrays(path: str) -> dict[str, NDArray[Any]]:
    with np.load(path) as archive:
        return {name: np.asarray(archive[name], order="C") for name in archive.files}


ANSWERS: Final = (
    Engine.load_library.make_handler(load_library),
    Engine.load_onnxruntime.make_handler(load_onnxruntime),
    Engine.time_bursts.make_handler(time_bursts),
    Engine.time_kernels.make_handler(time_kernels),
    Engine.save_outputs.make_handler(save_outputs),
    Engine.bisect_import.make_handler(bisect_import),
    Engine.run_alone.make_handler(run_alone),
    Engine.time_probes.make_handler(time_probes_here),
)

if __name__ == "__main__":
    serve(refuse_if_code_changed(collect_handlers(Engine, *ANSWERS)))
