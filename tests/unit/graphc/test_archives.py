"""Arrays in files: what is read is what was written, of every type that a task may have."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from mallorn.workers.device.random_and_saved_arrays import load_arrays, save_arrays


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", ml_dtypes.bfloat16], ids=str)
def test_an_array_keeps_its_type_and_values(tmp_path: Path, dtype: str) -> None:
    values = np.array([[0, 1.5, -2], [3, 4, 0]]).astype(dtype)
    save_arrays(str(tmp_path / "a.npz"), {"x": values})
    found = load_arrays(str(tmp_path / "a.npz"))["x"]
    assert found.dtype == values.dtype
    assert np.array_equal(found, values)


def test_names_keep_their_order(tmp_path: Path) -> None:
    narrow = np.zeros(2, ml_dtypes.bfloat16)
    save_arrays(str(tmp_path / "a.npz"), {"z": narrow, "a": np.zeros(2), "m": narrow})
    assert list(load_arrays(str(tmp_path / "a.npz"))) == ["z", "a", "m"]
