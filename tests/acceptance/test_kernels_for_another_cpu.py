"""Products of bytes compiled for aarch64 have the sums of integers when an emulated CPU runs them."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from tvm import relax

from mallorn.graphc.export.build_library import build_executable, export_library
from mallorn.graphc.quant.dot_products import Int8DotProducts
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from tests.fixtures.other_cpu import OtherCpu
from tests.unit.graphc import networks
from tests.unit.graphc.first_guess import schedule_first_guess
from tests.unit.graphc.networks import product, random_of

TARGETS: Final = {
    feature: json.dumps(
        {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": [f"+{feature}"], "num-cores": 1}
    )
    for feature in ("dotprod", "i8mm")
}
CASES: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]] = {
    "rows": ((24, 64), (64, 40), {}),
    "a window": ((1, 12, 8, 16), (3, 3, 16, 32), {"padding": 1, "strides": (1, 2)}),
    "few channels": ((1, 16, 16, 3), (3, 3, 3, 16), {"padding": 1}),
}


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
    tvm_target = as_tvm_target(target)
    with tvm_target:
        rewritten = networks.rewritten(Int8DotProducts(), mod)
        scheduled = schedule_first_guess(networks.fused(rewritten, tvm_target), target, "int8_")
        library = tmp_path / "aarch64.so"
        export_library(build_executable(scheduled, tvm_target), str(library), tvm_target, {})
    expected = networks.run(mod, matrix.astype("float32"))
    found = other_cpu.call(library, matrix, tmp_path).reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)
