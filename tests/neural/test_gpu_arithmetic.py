"""The rivals in torch compute the tasks of the GPU benchmark."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from benchmarks.gpu.arithmetic import TorchArithmetic, random_inputs
from benchmarks.gpu.kernel_batch import call_of, right_result
from benchmarks.gpu.tasks import REHEARSAL, SEARCHED_REHEARSAL, Task
from mallorn.core.targets import parse_target

# Libraries round results to the type of the factors; TF32 has ten bits of mantissa.
LARGEST_ERROR: Final = {"float32": 1e-3, "float16": 5e-3, "int8": 0.0}


@pytest.mark.parametrize("task", [*REHEARSAL, *SEARCHED_REHEARSAL], ids=lambda task: task.name)
def test_a_rival_computes_the_task(task: Task, tmp_path: Path) -> None:
    args = call_of(task, tmp_path, parse_target({"kind": "cuda", "arch": "sm_90a"}))["args"][:-1]
    arithmetic, right = TorchArithmetic("cpu"), right_result(task, random_inputs(args))
    found = arithmetic.rival(task, arithmetic.inputs(args))
    assert found is not None
    _, compute = found
    result: Any = compute()
    assert result.shape == right.shape
    assert np.linalg.norm(result.double().numpy() - right) <= LARGEST_ERROR[task.dtype] * np.linalg.norm(
        right
    )
