"""The rivals in torch compute the tasks of the GPU benchmark."""

from typing import Any

import numpy as np
import pytest

from benchmarks.gpu.arithmetic import TorchArithmetic
from benchmarks.gpu.kernel_batch import right_result
from benchmarks.gpu.tasks import LARGEST_ERROR, REHEARSAL, Task, shapes
from mallorn.workers.detached.run_batch import random_timing_arguments


@pytest.mark.parametrize("task", REHEARSAL, ids=lambda task: task.name)
def test_a_rival_computes_the_task(task: Task) -> None:
    *inputs, _ = shapes(task)
    args = [[task.dtype, list(shape), 0.1, 1.0] for shape in inputs]
    arithmetic, right = TorchArithmetic("cpu"), right_result(task, random_timing_arguments(args))
    found = arithmetic.rival(task, arithmetic.inputs(args))
    assert found is not None
    _, compute = found
    result: Any = compute()
    assert np.linalg.norm(result.float().numpy() - right) <= LARGEST_ERROR[task.dtype] * np.linalg.norm(right)
