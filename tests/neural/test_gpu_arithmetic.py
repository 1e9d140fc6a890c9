"""The GPU benchmark's right results and rivals in torch are those that numpy gives."""

import numpy as np
import pytest
import torch

from benchmarks.gpu.arithmetic import NumpyArithmetic, TorchArithmetic
from benchmarks.gpu.tasks import LARGEST_ERROR, REHEARSAL, Task


@pytest.mark.parametrize("task", REHEARSAL, ids=lambda task: task.name)
def test_torch_computes_what_numpy_computes(task: Task) -> None:
    arrays = NumpyArithmetic().inputs(task)
    expected = NumpyArithmetic().expected(task, arrays)
    tensors = [torch.from_numpy(array) for array in arrays]
    right = TorchArithmetic("cpu").expected(task, tensors).numpy()
    assert np.linalg.norm(right - expected) <= 1e-6 * np.linalg.norm(expected)
    _, rival = TorchArithmetic("cpu").rival(task, tensors) or ("", lambda: None)
    result = rival().float().numpy()
    assert np.linalg.norm(result - expected) <= LARGEST_ERROR[task.dtype] * np.linalg.norm(expected)
