"""Models for CUDA launch their kernels as a graph, except where each kernel is timed by itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.s_tir import dlight

from mallorn.graphc.export import compile_network
from mallorn.graphc.export.build_library import build_executable
from mallorn.kinds.cuda.device import cuda_graphs
from mallorn.kinds.cuda.device.cuda_graphs import RUN_OR_CAPTURE, enable_cuda_graphs

CACHED_ALLOCATION = "vm.builtin.cuda_graph.get_cached_alloc"
CUDA = tvm.target.Target(
    {
        "kind": "cuda",
        "arch": "sm_80",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
    }
)
LLVM = tvm.target.Target("llvm")


def network() -> Any:
    """Three layers: the first reads the model's input and the last writes its output, so one is captured."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 16), "float32"))
    weight = relax.const(np.eye(16, dtype="float32") * 2)
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(3):
                value = builder.emit(relax.op.nn.relu(relax.op.matmul(value, weight)))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    transform = relax.transform
    return tvm.transform.Sequential(
        [
            transform.LegalizeOps(),
            transform.AnnotateTIROpPattern(),
            transform.FuseOps(),
            transform.FuseTIR(),
        ]
    )(builder.get())


def on_gpu(mod: Any) -> Any:
    with CUDA:
        return dlight.ApplyDefaultSchedule(dlight.gpu.Matmul(), dlight.gpu.Fallback())(mod)


def build(mods: dict[str, Any], target: Any, folder: Path) -> Any:
    return build_executable(compile_network.apply_schedules(mods, None, [], target, str(folder)), target)


def test_a_model_for_cuda_captures_graphs_and_one_for_a_cpu_does_not(tmp_path: Path) -> None:
    (tmp_path / "gpu").mkdir()
    gpu = build({"": on_gpu(network())}, CUDA, tmp_path / "gpu")
    (tmp_path / "cpu").mkdir()
    cpu = build({"": network()}, LLVM, tmp_path / "cpu")
    assert RUN_OR_CAPTURE in gpu.as_text()
    assert CACHED_ALLOCATION in gpu.as_text()
    assert RUN_OR_CAPTURE not in cpu.as_text()


class Captures:
    """TVM's functions for graphs, on a CPU: a graph is launched as its part of the model is run."""

    def __init__(self) -> None:
        self.launches = 0
        self._allocated: dict[int, Any] = {}

    def run_or_capture(self, machine: Any, part: Any, arguments: Any, *_key: Any) -> Any:
        self.launches += 1
        return tvm_ffi.get_global_func("vm.builtin.invoke_closure")(machine, part, *arguments)

    def cached_allocation(self, machine: Any, part: Any, index: int) -> Any:
        if index not in self._allocated:
            invoke = tvm_ffi.get_global_func("vm.builtin.invoke_closure")
            self._allocated[index] = invoke(machine, part)
        return self._allocated[index]


@pytest.fixture
def captures() -> Iterator[Captures]:
    captures = Captures()
    tvm_ffi.register_global_func(RUN_OR_CAPTURE, captures.run_or_capture, override=True)
    tvm_ffi.register_global_func(CACHED_ALLOCATION, captures.cached_allocation, override=True)
    cuda_graphs.original_graph_function.cache_clear()
    yield captures
    for name in (RUN_OR_CAPTURE, CACHED_ALLOCATION):
        tvm_ffi.registry.remove_global_func(name)
    cuda_graphs.original_graph_function.cache_clear()


def test_each_kernel_is_seen_by_itself_only_where_graphs_are_off(captures: Captures) -> None:
    config = {"relax.backend.use_cuda_graph": True}
    with tvm.transform.PassContext(config=config):
        executable = relax.build(network(), LLVM, relax_pipeline=relax.get_pipeline("default_build"))
    enable_cuda_graphs(0)
    watched = relax.VirtualMachine(executable, tvm.cpu())
    enable_cuda_graphs(1)
    graphs = relax.VirtualMachine(executable, tvm.cpu())

    def kernels(machine: Any) -> list[str]:
        names: list[str] = []

        def watch(_function: Any, name: str, before: bool, *_rest: Any) -> int:
            if before and not name.startswith("vm.builtin."):
                names.append(name)
            return 0

        machine.set_instrument(watch)
        x = np.ones((16, 16), "float32")
        assert np.array_equal(machine["main"](tvm.runtime.tensor(x)).numpy(), x * 8)
        return names

    assert len(kernels(watched)) == 3
    assert captures.launches == 0
    kernels(graphs)
    assert captures.launches == 1
