"""Only the intrinsics of the target's kind are parsed, and tensorized sketches still find theirs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

LOADED = """
import json, sys
from mallorn.workers.tvm.programs.tensor_intrinsics import load_intrinsics
load_intrinsics('{{"kind":"llvm","mtriple":"{triple}"}}')
import tvm.s_tir.tensor_intrin
prefix = "tvm.s_tir.tensor_intrin."
print(json.dumps(sorted(name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix))))
"""

VNNI = """
import json, sys
from mallorn.workers.tvm.programs.tensor_intrinsics import load_intrinsics
load_intrinsics('{"kind":"llvm","mtriple":"x86_64-linux-gnu"}')
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms
a, b = te.placeholder((64, 64), "uint8"), te.placeholder((64, 64), "int8")
k = te.reduce_axis((0, 64))
c = te.compute((64, 64), lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k))
context = ms.TuneContext(
    tvm.IRModule({"main": te.create_prim_func([a, b, c])}),
    target=tvm.target.Target({"kind": "llvm", "mcpu": "cascadelake", "num-cores": 2}),
    space_generator="post-order-apply",
)
print(json.dumps(["dot_16x4_vnni" in str(sketch.trace) for sketch in context.generate_design_space()]))
"""


def run(script: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("triple", "expected"),
    [("x86_64-linux-gnu", ["x86"]), ("aarch64-linux-gnu", ["arm_cpu", "dot_product_common"])],
)
def test_only_the_targets_own_intrinsics_are_loaded(triple: str, expected: list[str]) -> None:
    assert run(LOADED.format(triple=triple)) == expected


def test_tensorized_sketches_find_their_intrinsics() -> None:
    sketches = run(VNNI)
    assert sketches
    assert all(sketches)
