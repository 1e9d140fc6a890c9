"""Models for CUDA become libraries of device code, where they are tuned and where stock TVM compiles them."""

import subprocess
from pathlib import Path

import pytest

from mallorn.kinds.cuda.compiler.compile_cuda import DRIVER, STUB
from mallorn.kinds.cuda.graph.cuda_toolkit import cuda_folders
from mallorn.workers.host.linker import find_c_compiler
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.sandbox.landlock import READ
from mallorn.workers.tvm.compile.compile_model import compile_default
from tests.fixtures.cuda import cuda_target, needs_nvcc
from tests.integration.tvm_graph.conftest import Example
from tests.integration.tvm_graph.test_apply_script import run_script

SOURCE = b"__launch_bounds__"


@pytest.fixture(scope="module")
def mlp_for_cuda(tmp_path_factory: pytest.TempPathFactory) -> Example:
    return Example("mlp", "tuned", tmp_path_factory.mktemp("mlp-cuda"), target=cuda_target("sm_80"))


@needs_nvcc
def test_a_tuned_model_is_one_library_with_device_code_of_all_its_tasks(
    mlp_for_cuda: Example, tmp_path: Path
) -> None:
    one, library = mlp_for_cuda, tmp_path / "model.so"
    with ModelCompiler(room=tmp_path, others=((str(one.folder), READ),)) as graphs:
        built = graphs.compile_model(one.path, one.schedules, one.target, one.recipe, str(library), {})
    assert (built.found, built.missing) == (built.of, [])
    assert built.of == len(one.tasks)
    held = library.read_bytes()
    assert held.count(b".nv.info.") >= len(one.tasks)
    assert SOURCE not in held


@needs_nvcc
def test_the_untuned_model_is_device_code_too(mlp_for_cuda: Example, tmp_path: Path) -> None:
    library = tmp_path / "untuned.so"
    compile_default(mlp_for_cuda.path, mlp_for_cuda.target, str(library), {})
    assert b".nv.info." in library.read_bytes()
    assert SOURCE not in library.read_bytes()


def test_stock_tvm_finds_every_schedule_of_an_export_on_a_machine_without_a_gpu(
    mlp_for_cuda: Example, tmp_path: Path
) -> None:
    report = run_script(mlp_for_cuda.schedules, mlp_for_cuda.path, "-o", str(tmp_path / "model.so"))
    assert report["workloads_found"] == report["workloads"] == len(mlp_for_cuda.tasks)
    assert report["latency_ms"] is None


@needs_nvcc
def test_stock_tvm_compiles_to_device_code_where_a_driver_is(mlp_for_cuda: Example, tmp_path: Path) -> None:
    """The stub of a driver stands for one: nothing of ours is loaded beside it."""
    command = find_c_compiler()
    assert command is not None
    subprocess.run([command, "-shared", "-fPIC", "-o", tmp_path / DRIVER, STUB], check=True)
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "CUDA_HOME": str(next(cuda_folders()))}
    library = tmp_path / "model.so"
    report = run_script(mlp_for_cuda.schedules, mlp_for_cuda.path, "-o", str(library), **environment)
    assert report["workloads_found"] == report["workloads"]
    assert b".nv.info." in library.read_bytes()
    assert SOURCE not in library.read_bytes()
