"""What is compiled for aarch64 computes what it should when an emulated CPU runs it."""

import json
import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tvm import relax

from benchmarks.networks.quantised import QUANTISED
from mallorn.graphc.export.build_library import build_executable, export_library
from mallorn.graphc.quant.dot_products import Fp16DotProducts, Int8DotProducts
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from tests.fixtures.other_cpu import OtherCpu
from tests.unit.graphc import networks
from tests.unit.graphc.first_guess import schedule_first_guess
from tests.unit.graphc.networks import product, random_of
from tests.unit.graphc.test_keep_block_quantized_weights import lowered, n_bits

TARGETS: Final = {
    feature: json.dumps(
        {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": [f"+{feature}"], "num-cores": 1}
    )
    for feature in ("dotprod", "i8mm")
}
CASES: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]] = {
    "rows": ((24, 64), (64, 40), {}),
    "a window": ((1, 12, 8, 16), (3, 3, 16, 32), {"padding": 1, "strides": (1, 2)}),
    "tiles that are not full": ((37, 72), (72, 48), {}),
    "two rows of a picture": ((2, 9, 9, 64), (3, 3, 64, 40), {"padding": (1, 0, 2, 1), "strides": (2, 1)}),
    "few channels": ((1, 16, 16, 3), (3, 3, 3, 16), {"padding": 1}),
}
NETWORKS: Final = {
    **{name: build(0) for name, build in QUANTISED.items() if name != "blocks-int4"},
    **{f"weights of {bits} bits": n_bits((9,), 64, 48, bits=bits, block=32, zeros=True) for bits in (4, 8)},
}
# A rounding may fall to the next byte where float32 sums have another order.
LARGEST_ERROR = 0.02


def call(mod: Any, target: str, other_cpu: OtherCpu, numbers: Any, folder: Path) -> Any:
    """Return what a module computes there; its products of bytes have the schedules of first guesses."""
    tvm_target, library = as_tvm_target(target), folder / "aarch64.so"
    with tvm_target:
        scheduled = schedule_first_guess(mod, target, re.compile(r"int\d_|fp16_"))
        export_library(build_executable(scheduled, tvm_target), str(library), tvm_target, {})
    return other_cpu.call(library, numbers, folder)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_a_kernel_for_another_cpu_has_the_sums_of_integers(
    case: Any, dtype: str, target: str, other_cpu: OtherCpu, tmp_path: Path
) -> None:
    data, kernel, options = case
    numbers, weights = random_of(dtype, *data), random_of("int8", *kernel)
    limits = np.iinfo(dtype)
    numbers[..., :8], weights[..., :8] = limits.max, -128  # the largest sums
    numbers[0, 0] = limits.min

    def body(emit: Any, x: Any) -> Any:
        bytes_ = emit(relax.op.reshape(emit(relax.op.astype(x, dtype)), data))
        centred = emit(relax.op.subtract(emit(relax.op.astype(bytes_, "int16")), relax.const(9, "int16")))
        return product(centred, weights, "int32", **options)

    matrix = numbers.reshape(-1, data[-1])
    mod = networks.network(body, matrix.shape)
    with as_tvm_target(target):
        fused = networks.fused(networks.rewritten(Int8DotProducts(), mod), as_tvm_target(target))
    expected = networks.run(mod, matrix.astype("float32"))
    found = call(fused, target, other_cpu, matrix, tmp_path)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


@pytest.mark.parametrize("mcpu", ["neoverse-n1", "neoverse-v1"], ids=["converted", "FMLAL"])
@pytest.mark.parametrize("case", [CASES["rows"], CASES["a window"]], ids=["rows", "a window"])
def test_products_of_float16_for_another_cpu_have_float32_sums(
    case: Any, mcpu: str, other_cpu: OtherCpu, tmp_path: Path
) -> None:
    data, kernel, options = case
    target = json.dumps({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": mcpu, "num-cores": 1})
    numbers, weights = (
        networks.random(*shape).astype("float16").astype("float32") for shape in (data, kernel)
    )
    mod = networks.network(lambda _, x: product(x, weights, **options), data)
    with as_tvm_target(target):
        fused = networks.fused(networks.rewritten(Fp16DotProducts(), mod), as_tvm_target(target))
    expected = networks.run(mod, numbers)
    found = call(fused, target, other_cpu, numbers, tmp_path).view("float32").reshape(expected.shape)
    assert networks.difference(found, expected) <= 1e-6


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_a_quantised_network_for_another_cpu_is_onnxruntimes(
    network: Any, target: str, other_cpu: OtherCpu, tmp_path: Path
) -> None:
    mod = lowered(network, tmp_path, target)
    shape = [size.dim_value for size in network.graph.input[0].type.tensor_type.shape.dim]
    x = networks.random(*shape)
    (expected,) = networks.run_onnxruntime(network, x, fused=False)
    found = call(mod, target, other_cpu, x, tmp_path).view("float32").reshape(expected.shape)
    assert np.abs(found - expected).max() <= LARGEST_ERROR * np.abs(expected).max()
