"""First guesses of whole networks for a GPU."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks.cuda_networks import rows, summary
from benchmarks.networks.development import DEVELOPMENT
from mallorn.core.targets import Target
from tests.fixtures.cuda import cuda_target
from zoo import MODELS

GPU = Target(cuda_target("sm_90a"))


def of_network(
    model: onnx.ModelProto, precision: str, folder: Path, *, emulate: float
) -> list[dict[str, Any]]:
    onnx.save(model, folder / "network.onnx")
    options = Namespace(compile=False, emulate=emulate)
    return list(rows(folder / "network.onnx", precision, GPU, options))


@pytest.mark.parametrize("precision", ["float32", "fp16"])
def test_the_first_guesses_of_a_network_are_right(precision: str, tmp_path: Path) -> None:
    found = of_network(MODELS["mlp"](0), precision, tmp_path, emulate=1e7)
    counts = summary(found)[precision]
    assert 1 <= counts["emulated"] <= len(found)
    assert counts["first guess invalid"] == counts["faulty"] == 0
    assert counts["worst error"] <= 2e-3


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "fp16"])
@pytest.mark.parametrize("name", ["segformer", "shuffle", "recommender"])
def test_no_first_guess_of_a_network_is_invalid(name: str, precision: str, tmp_path: Path) -> None:
    found = of_network(DEVELOPMENT[name](0), precision, tmp_path, emulate=3e6)
    counts = summary(found)[precision]
    assert counts["first guess invalid"] == counts["faulty"] == 0
    assert counts["worst error"] <= 2e-3
