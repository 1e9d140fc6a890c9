"""CUDA kernels are compiled to device code where they are built, without a GPU."""

from collections.abc import Iterator

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from mallorn.core.errors import HostFault
from mallorn.kinds.cuda.compiler import compile_cuda
from mallorn.kinds.cuda.compiler.compile_cuda import KernelRefused, Toolchain, load_cuda_compiler
from mallorn.kinds.cuda.compiler.cuda_kernel_resources import CannotLaunch
from mallorn.kinds.cuda.typical_gpu import assume_typical_gpu
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.searchers.space import Sketch
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.tvm.compile.build_libraries import compile_module
from tests.fixtures.cuda import cuda_target, needs_nvcc
from tests.unit.tvm_space.programs import matmul

ELF_FOR_CUDA = b"\x7fELF\x02\x01\x01\x41"  # the header of a cubin, as nvcc 13 writes it
MEMORY_BYTES = 8 << 30
H100 = cuda_target("sm_90a")


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CandidateCompiler]:
    """A candidate compiler behind its walls, with as much memory as a worker's."""
    room = tmp_path_factory.mktemp("room")
    with CandidateCompiler(room=room, memory_bytes=MEMORY_BYTES) as child:
        yield child


def first_guess(compiler: CandidateCompiler, target: str) -> tuple[Sketch, tuple[int, ...]]:
    sketch = compiler.design_space(matmul(), target)[-1]
    return sketch, ranked([sketch], (), assume_typical_gpu(), 1)[0].decisions


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_candidate_s_library_holds_device_code_and_no_source(
    arch: str, compiler: CandidateCompiler, tmp_path_factory: pytest.TempPathFactory
) -> None:
    room = next(path for path in tmp_path_factory.getbasetemp().glob("room*"))
    target, library = cuda_target(arch), room / f"{arch}.so"
    sketch, decisions = first_guess(compiler, target)
    built = compiler.build(matmul(), target, sketch.trace, decisions, str(library))
    held = library.read_bytes()
    assert len(held) == built.bytes
    assert held.count(b"\x7fELF") == 2, "the library itself, and one cubin"
    assert b".nv.info.main_kernel" in held
    assert b"__launch_bounds__" not in held
    assert [path.name for path in room.iterdir() if path.name.startswith("mallorn-cuda-")] == []


@needs_nvcc
def test_the_ptx_of_a_candidate_is_a_row_of_features(compiler: CandidateCompiler) -> None:
    sketch, decisions = first_guess(compiler, H100)
    (row,) = compiler.compute_lowered_features("code", matmul(), H100, [(sketch.trace, decisions)])
    assert row is not None
    assert np.frombuffer(row, "<f4").any()


@T.prim_func(s_tir=True)
def unknown_function(a: T.Buffer((32,), "float32"), b: T.Buffer((32,), "float32")) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for i in T.thread_binding(32, thread="threadIdx.x"):
        with T.sblock("b"):
            v = T.axis.spatial(32, i)
            b[v] = T.call_extern("float32", "nobody_wrote_this", a[v])


def sharing(words: int, scope: str) -> tvm.IRModule:
    """Each thread keeps a number in a block's shared memory, of which there is much more."""

    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((words,), "float32"), b: T.Buffer((words,), "float32")) -> None:
        T.func_attr({"global_symbol": "main", "tirx.noalias": True})
        kept = T.sblock_alloc_buffer((words,), scope=scope)
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            for i in T.thread_binding(32, thread="threadIdx.x"):
                for j in range(words // 32):
                    with T.sblock("in"):
                        v = T.axis.spatial(words, i * (words // 32) + j)
                        kept[v] = a[v]
            for i in T.thread_binding(32, thread="threadIdx.x"):
                for j in range(words // 32):
                    with T.sblock("out"):
                        v = T.axis.spatial(words, i * (words // 32) + j)
                        b[v] = kept[words - 1 - v]

    return tvm.IRModule({"main": main})


@needs_nvcc
def test_what_nvcc_refuses_is_an_error_with_its_text_and_without_the_source() -> None:
    with pytest.raises(KernelRefused, match=r"nobody_wrote_this.* is undefined") as refused:
        compile_module(tvm.IRModule({"main": unknown_function}), H100)
    assert "__global__" not in refused.value.message


@needs_nvcc
def test_what_ptxas_refuses_is_an_error_with_its_text() -> None:
    with pytest.raises(KernelRefused, match="uses too much shared data"):
        compile_module(sharing(16 << 10, "shared"), cuda_target("sm_80"))


@needs_nvcc
@pytest.mark.parametrize(("arch", "fits"), [("sm_80", True), ("sm_89", False), ("sm_90a", True)])
def test_shared_memory_that_no_block_can_have_is_refused_before_a_device_sees_it(
    arch: str, fits: bool
) -> None:
    module = sharing(30 << 10, "shared.dyn")  # 120 KiB
    if fits:
        assert compile_module(module, cuda_target(arch))[0].imports
        return
    with pytest.raises(CannotLaunch, match="122880 bytes of shared memory"):
        compile_module(module, cuda_target(arch))


@needs_nvcc
def test_static_shared_memory_is_not_more_than_any_gpu_gives_unasked() -> None:
    """For compute capability 9.0 ptxas lets 227 KiB pass, of which a launch can ask for dynamic ones only."""
    with pytest.raises(CannotLaunch, match="65536 bytes of static shared memory"):
        compile_module(sharing(16 << 10, "shared"), H100)


def test_a_host_without_a_compiler_is_to_blame_and_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = (("CUDA's compiler nvcc", "pip install it"),)
    monkeypatch.setattr(compile_cuda, "find_toolchain", lambda: Toolchain(None, None, False, missing))
    with pytest.raises(HostFault, match="lacks CUDA's compiler nvcc") as fault:
        load_cuda_compiler.__wrapped__()
    assert fault.value.hint == "pip install it"
