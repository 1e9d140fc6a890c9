"""The metadata in a library come out of it as they went in, and name free dimensions as the model does."""

import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm.target.codegen import llvm_get_cpu_features

from mallorn.core.targets import parse_target
from mallorn.graphc.export.library_metadata import (
    describe_library,
    metadata_source,
    output_specs,
    required_cpu_features,
)
from mallorn.workers.device.target_support import needed_flags
from mallorn_runtime import read_library_file
from mallorn_runtime.library_file import find_section
from tests.fixtures.onnx_network import onnx_network, saved

COMPILERS = [name for name in ("cc", "g++") if shutil.which(name)]
SPEC = {"name": 'q"\\ ??/ü', "dtype": "float32", "shape": [1, 2]}


@pytest.mark.skipif(not COMPILERS, reason="needs a C compiler")
@pytest.mark.parametrize("compiler", COMPILERS)
def test_any_name_survives_both_compilers(compiler: str, tmp_path: Path) -> None:
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    workloads = [{"task": f"t{number}", "weight": number, "tir": "left out"} for number in range(500)]
    manifest = {"job": "1234", "workloads": workloads}
    files = {"model": Path(saved(tmp_path / "model.onnx", [], {}, {}))}
    metadata = describe_library(target, manifest, [SPEC], [SPEC], files)
    (tmp_path / "metadata.c").write_text(metadata_source(metadata))
    library = tmp_path / "model.so"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library)]
    subprocess.run([*command, str(tmp_path / "metadata.c")], check=True)
    read = read_library_file(library)
    assert read.meta == metadata
    assert read.inputs[0].name == SPEC["name"]
    assert read.threads == 2
    assert set(read.meta["workloads"][7]) == {"task", "workload", "weight", "latency_us"}
    with library.open("rb") as file:
        assert find_section(file, library.stat().st_size)[1].startswith(b'{"format":1')


def test_weights_in_files_are_those_of_the_whole_model(tmp_path: Path) -> None:
    model, part = network([2]), saved(tmp_path / "part.onnx", [], {}, {})
    model.graph.initializer.append(numpy_helper.from_array(np.arange(9.0), "w"))
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    files = {"model": Path(part), "source": tmp_path / "model.onnx"}
    metadata = describe_library(tvm.target.Target("llvm"), {}, [SPEC], [SPEC], files)
    assert metadata["weights"] == {"w.bin": sha256((tmp_path / "w.bin").read_bytes()).hexdigest()}
    assert metadata["digests"]["source"] == sha256((tmp_path / "model.onnx").read_bytes()).hexdigest()


def network(shape: list[Any]) -> Any:
    x, y = ({name: helper.make_tensor_value_info(name, TensorProto.INT64, shape)} for name in "xy")
    return onnx_network([helper.make_node("Identity", ["x"], ["y"])], x, y)


def test_outputs_of_a_range_have_the_names_of_free_dimensions() -> None:
    sized = {"outputs": [{"name": "y", "dtype": "int64", "shape": [8, 4]}]}
    assert output_specs(network([8, 4]), sized) == sized["outputs"]
    (spec,) = output_specs(network(["batch", 4]), sized | {"dynamic": {"ranges": {}}})
    assert spec == {"name": "y", "dtype": "int64", "shape": ["batch", 4]}
    (spec,) = output_specs(network([None, 4]), {})
    assert spec["shape"] == ["?", 4]


def test_features_are_named_as_the_kernel_names_them() -> None:
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "icelake-server"})
    features = required_cpu_features(target)
    assert {"avx512f", "avx512_vnni", "sse4_2", "bmi1", "abm"} <= set(features)
    assert "amx_tile" not in features
    assert required_cpu_features(tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"})) == []


@pytest.mark.parametrize("cpu", ["skylake-avx512", "znver4", "sapphirerapids"])
def test_a_device_that_may_time_a_library_may_run_it(cpu: str) -> None:
    attrs = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": cpu, "num-cores": 1}
    attrs |= {"mattr": ["-avx512bf16"]}
    target = tvm.target.Target(attrs)
    features = [str(feature) for feature in llvm_get_cpu_features(target)]
    asked = needed_flags(parse_target(attrs), features, "x86_64")
    assert set() < set(required_cpu_features(target)) <= set(asked.values())
