"""Networks of one operator: what the benchmark compares is what it says."""

import numpy as np
import onnxruntime
import pytest

from benchmarks.operators.models import OPERATORS, model_of


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_is_a_network_that_runs(name: str) -> None:
    model, shape = model_of(name)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": np.ones(shape, np.float32)})
    assert np.isfinite(result).all()
