"""Quantised networks in the default recipe: integers from end to end, with onnxruntime's numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax

from tests.unit.graphc.networks import UNOPTIMIZED
from tests.unit.graphc.test_int8_dot_products import WIDE, WITHOUT
from workers.tvm.graph_recipes import TUNED
from workers.tvm.import_onnx_to_relax import load_network
from workers.tvm.run_recipe_passes import as_tvm_target, operators, run_steps

onnxruntime = pytest.importorskip("onnxruntime")
from tests.unit.graphc.test_import_quantized_operators import (  # noqa: E402 (they need onnxruntime)
    NETWORKS,
    QDQ,
    QLINEAR,
    S8,
    U8,
    quantised,
    quantization,
    sample,
    theirs,
)


def lowered(path: Path, target: str = WIDE) -> Any:
    found = as_tvm_target(target)
    mod, _ = run_steps(load_network(path, target=found).mod, TUNED.before, found)
    return mod


def near(path: Path, mod: Any, x: Any) -> None:
    """The same numbers without schedules, but for what rounds the other way at a few places."""
    machine = relax.VirtualMachine(relax.build(mod, UNOPTIMIZED), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    (wanted,) = theirs(path, x)
    assert np.abs(found - wanted).mean() <= 2 * np.abs(wanted).max() / 255


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("form", [QDQ, QLINEAR], ids=["QDQ", "QLinear"])
@pytest.mark.parametrize("data", [U8, S8], ids=["u8", "s8"])
def test_products_are_of_integers(tmp_path, network, form, data):
    path = quantised(tmp_path, network, form, data)
    mod = lowered(path)
    counted = operators(mod)
    products = sum(count for name, count in counted.items() if "int8_" in name)
    assert products == {"pictures": 2, "words": 3}[network]
    near(path, mod, sample(NETWORKS[network][1], 1))


@pytest.mark.parametrize("network", NETWORKS)
def test_dynamic_quantisation_multiplies_integers(tmp_path, network):
    make, shape = NETWORKS[network]
    onnx.save(make(17), tmp_path / "real.onnx")
    quantization.quantize_dynamic(tmp_path / "real.onnx", tmp_path / "quantised.onnx", weight_type=S8)
    mod = lowered(tmp_path / "quantised.onnx")
    if network == "words":
        assert sum(count for name, count in operators(mod).items() if "int8_matmul" in name) == 3
    near(tmp_path / "quantised.onnx", mod, sample(shape, 1))


def test_nothing_between_products_is_stored_as_real_numbers(tmp_path):
    """A chain of convolutions with a residual sum writes bytes alone, until what follows is no product."""
    mod = lowered(quantised(tmp_path, "pictures", QDQ, U8))
    written: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and "int8_conv2d" in str(node.args[0] if node.args else ""):
            written.append(str(node.ty.dtype))

    relax.analysis.post_order_visit(mod["main"], visit)
    assert written == ["uint8", "uint8"]


def test_a_processor_without_the_instruction_computes_with_real_numbers(tmp_path):
    path = quantised(tmp_path, "pictures", QDQ, U8)
    mod = lowered(path, WITHOUT)
    assert not any("int8_" in name for name in operators(mod))
    near(path, mod, sample((1, 3, 16, 16), 1))
