"""The exported script, run as a user runs it: from its own directory's copy, with stock TVM alone."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm

from workers.tvm.compile import compile_model
from workers.tvm.templates import apply


def run_script(directory: str, *args: str, **environment: str) -> dict[str, Any]:
    script = shutil.copy(apply.__file__, directory)
    # An empty PYTHONPATH and another directory: nothing of ours is within its reach.
    done = subprocess.run(
        [sys.executable, script, *args],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.parametrize("name", ["mlp", "bert-small"])
def test_it_finds_every_schedule_and_agrees_with_onnxruntime(name: str, example: Callable[..., Any]) -> None:
    one = example(name)
    report = run_script(one.schedules, one.path, "--check")
    assert report["workloads_found"] == report["workloads"] == len(one.graph["tasks"])
    assert report["latency_ms"] > 0
    assert report["relative_error"] < 1e-4


def test_its_library_is_the_one_that_mallorn_compiles(mlp: Any, tmp_path: Path) -> None:
    """Same hits, and the same numbers to the last bit."""
    theirs, ours = str(tmp_path / "theirs.so"), str(tmp_path / "ours.so")
    script = run_script(mlp.schedules, mlp.path, "-o", theirs)
    compiled = compile_model(mlp.path, mlp.schedules, mlp.target, mlp.recipe, ours)
    assert (script["workloads_found"], script["workloads"]) == (compiled["found"], compiled["of"])
    inputs = apply.random_inputs(onnx.load(mlp.path), {}, {})
    outputs = [apply.run(path, list(inputs.values()), tvm.cpu())[0] for path in (theirs, ours)]
    assert np.array_equal(outputs[0], outputs[1])


def test_threads_follow_the_target_whatever_the_environment_says(mlp: Any, tmp_path: Path) -> None:
    directory = shutil.copytree(mlp.schedules, tmp_path / "copy")
    script = Path(shutil.copy(apply.__file__, directory))
    probe = 'sys.stdout.write(json.dumps({"threads": tvm.runtime.num_threads()}) + "\\n")'
    script.write_text(script.read_text().replace("    main()\n", f"    {probe}\n"))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "TVM_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"threads": 2}
