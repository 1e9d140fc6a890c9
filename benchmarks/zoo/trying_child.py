"""The child of `trying.py`."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm

from benchmarks.zoo.cases import Case, cases, with_constants
from benchmarks.zoo.trying import Answer, Trying
from mallorn.core.errors import InvalidModel
from mallorn.workers.subprocesses.serve_calls import serve
from mallorn.workers.subprocesses.typed_method import collect_handlers
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network

REFUSED, RIGHT, WRONG = "refused", "right", "wrong"
# The reference rounds to half a number's bits after every step, and in another order than sums are taken.
SLACK = {"float16": 4e-3, "bfloat16": 3e-2}
LEAST = 1e-5


def try_case(name: str) -> Answer:
    """As it is; where TVM cannot, with constants in the place of all inputs but the first."""
    case = cases()[name]
    answer = _tried(case)
    if answer.outcome == REFUSED and len(case.inputs) > 1:
        answer = _tried(with_constants(case))
    return answer


def _tried(case: Case) -> Answer:
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        path = Path(folder, "case.onnx")
        onnx.save(case.model, path)
        try:
            found = _run(load_network(path).mod, case.inputs)
        except InvalidModel as error:
            return Answer(REFUSED, error.message)
    return _compared(case, found)


def _run(mod: Any, inputs: Sequence[Any]) -> list[Any]:
    target = tvm.target.Target("llvm")
    machine = tvm.relax.VirtualMachine(tvm.compile(mod, target), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(np.asarray(value)) for value in inputs))
    return [result.numpy()] if hasattr(result, "numpy") else [each.numpy() for each in result]


def _compared(case: Case, found: Sequence[Any]) -> Answer:
    for ours, right in zip(found, case.outputs, strict=True):
        if ours.shape != right.shape or ours.dtype != right.dtype:
            return Answer(WRONG, f"{ours.dtype}{ours.shape} for {right.dtype}{right.shape}")
        slack = max(case.atol, SLACK.get(str(right.dtype), LEAST))
        both = ours.astype("float64"), right.astype("float64")
        near = np.isclose(*both, rtol=max(case.rtol, slack), atol=slack, equal_nan=True)
        if not near.all():
            return Answer(WRONG, f"{np.count_nonzero(~near)} of {near.size} numbers differ")
    return Answer(RIGHT)


if __name__ == "__main__":
    serve(collect_handlers(Trying, Trying.try_case.make_handler(try_case)))
