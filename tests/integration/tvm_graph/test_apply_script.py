"""The exported script, run as a user runs it: from its own directory's copy, with stock TVM alone."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm.target.codegen import target_has_features

from mallorn.graphc.export import compile_network
from mallorn.graphc.export.zip_graphc import write_archive
from mallorn.workers.device.detect_host import detect_target
from mallorn.workers.tvm.compile.compile_model import compile_model
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from tests.fixtures.onnx_network import saved
from tests.integration.tvm_graph.conftest import Example

BOUNDS = {"low": 0.0, "high": 6.0}


def copy_scripts(directory: str) -> str:
    """What an export holds beside its logs; where the script is."""
    _archive, script = write_archive(Path(directory))
    return str(script)


def start(directory: str, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # An empty PYTHONPATH and another directory: nothing of ours is within its reach.
    return subprocess.run(
        [sys.executable, copy_scripts(directory), *args],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def run_script(directory: str, *args: str, **environment: str) -> dict[str, Any]:
    done = start(directory, *args, **environment)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def test_it_finds_every_schedule_and_agrees_with_onnxruntime(example: Callable[..., Any]) -> None:
    one = example("bert-small")
    report = run_script(one.schedules, one.path, "--check")
    assert report["workloads_found"] == report["workloads"] == len(one.tasks)
    assert report["latency_ms"] > 0
    assert report["relative_error"] < 1e-4


class Bounded(Example):
    """A convolution that Winograd's pays for, with a bounded activation."""

    @cached_property
    def path(self) -> str:
        weights = np.random.default_rng(0).standard_normal((48, 48, 3, 3)).astype("float32")
        bounds = {name: np.array(bound, "float32") for name, bound in BOUNDS.items()}
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node("Clip", ["c", *BOUNDS], ["y"]),
        ]
        shape = (1, 48, 30, 30)
        return saved(self.folder / "bounded.onnx", nodes, {"x": shape}, {"y": shape}, w=weights, **bounds)


def test_it_brings_the_passes_that_stock_tvm_lacks(tmp_path: Path) -> None:
    one = Bounded("bounded", "tuned", tmp_path)
    kernels = " ".join(one.graph.operators_after)
    assert "winograd_pack" in kernels
    assert "maximum_minimum" in kernels
    report = run_script(one.schedules, one.path, "--check")
    assert report["workloads_found"] == report["workloads"] == len(one.tasks)
    assert report["relative_error"] < 1e-4


class Widened(Example):
    """Two transposed convolutions with a norm between: in interleaved images, and by sums of products."""

    @cached_property
    def path(self) -> str:
        rng = np.random.default_rng(0)
        kernels = {"v": (32, 16, 4, 4), "w": (16, 3, 3, 3), "g": (16,), "b": (16,)}
        weights = {name: rng.standard_normal(shape).astype("float32") / 8 for name, shape in kernels.items()}
        attrs: dict[str, Any] = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
        nodes = [
            helper.make_node("ConvTranspose", ["x", "v"], ["c"], kernel_shape=[4, 4], **attrs),
            helper.make_node("InstanceNormalization", ["c", "g", "b"], ["n"]),
            helper.make_node("LeakyRelu", ["n"], ["d"], alpha=0.1),
            helper.make_node("ConvTranspose", ["d", "w"], ["y"], kernel_shape=[3, 3], **attrs),
        ]
        ends = {"x": (1, 32, 9, 7)}, {"y": (1, 3, 35, 27)}
        return saved(self.folder / "widened.onnx", nodes, *ends, **weights)


def test_transposed_convolutions_and_norms_are_found_again(tmp_path: Path) -> None:
    one = Widened("widened", "tuned", tmp_path)
    kernels = " ".join(one.graph.operators_after)
    assert "transposed_conv2d" in kernels
    assert "transposed_sums" in kernels
    assert "norm_parts" in kernels
    report = run_script(one.schedules, one.path, "--check")
    assert report["workloads_found"] == report["workloads"] == len(one.tasks)
    assert report["relative_error"] < 1e-4


@pytest.mark.skipif(
    "avx512_bf16" not in Path("/proc/cpuinfo").read_text(), reason="this processor has no AVX512-BF16"
)
def test_it_brings_the_instruction_that_stock_tvm_lacks(tmp_path: Path) -> None:
    target = detect_target().text
    if not target_has_features("avx512bf16", as_tvm_target(target)):
        pytest.skip("this processor has no products of bfloat16")
    one = Example("mlp", "tuned", tmp_path, target=target, precision="bf16")
    report = run_script(one.schedules, one.path, "--check", "-o", str(tmp_path / "mlp.so"))
    assert report["workloads_found"] == report["workloads"] == len(one.tasks)
    # Rounded, and no more than that.
    assert 1e-5 < report["relative_error"] < 2e-2


def test_its_library_is_the_one_that_mallorn_compiles(mlp: Any, tmp_path: Path) -> None:
    """Same hits, and the same numbers to the last bit."""
    theirs, ours = str(tmp_path / "theirs.so"), str(tmp_path / "ours.so")
    script = run_script(mlp.schedules, mlp.path, "--check", "-o", theirs)
    assert script["relative_error"] < 1e-4
    compiled = compile_model(mlp.path, mlp.schedules, mlp.target, mlp.recipe, ours, {})
    assert (script["workloads_found"], script["workloads"]) == (compiled.found, compiled.of)
    inputs = compile_network.random_inputs(onnx.load(mlp.path), {}, {})
    outputs = [
        compile_network.run_and_time_library(path, list(inputs.values()), tvm.cpu())[0]
        for path in (theirs, ours)
    ]
    assert np.array_equal(outputs[0], outputs[1])
    assert exported_functions(theirs) == exported_functions(ours) != {}


def exported_functions(library: str) -> dict[str, str]:
    """The size of each function that a library exports; linkers add others of their own."""
    command = ["nm", "--dynamic", "--print-size", "--defined-only", library]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    symbols = [line.split() for line in listed.splitlines()]
    return {
        words[3]: words[1]
        for words in symbols
        if len(words) == 4 and words[3].startswith(("__tvm", "mallorn"))
    }


UNDER_A_MASK = """
import os, runpy, sys
sys.path.insert(0, os.getcwd())
os.sched_setaffinity(0, last := {max(os.sched_getaffinity(0))})
runpy.run_path("apply.py", run_name="__main__")
assert os.sched_getaffinity(0) == last
"""


def test_threads_follow_the_target_whatever_the_environment_says_and_stay_where_they_were_put(
    mlp: Any, tmp_path: Path
) -> None:
    directory = shutil.copytree(mlp.schedules, tmp_path / "copy")
    copy_scripts(str(directory))
    command = [sys.executable, "-c", UNDER_A_MASK, mlp.path]
    env = {**os.environ, "PYTHONPATH": "", "TVM_NUM_THREADS": "1"}
    env.pop("TVM_BIND_THREADS", None)
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["threads"] == 2
