"""Block-quantised weights stay as their instruction reads them; all others may be laid out anew."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.tasks.mark_tasks import FREE, KeepPackedWeights
from tests.unit.graphc.networks import network, weights
from tests.unit.graphc.tensor_function_conformance import TensorFunctionConformance


def decoded(emit: Any, x: Any) -> Any:
    """A product with bytes that have one scale a column."""
    rng = np.random.default_rng(0)
    wide = emit(relax.op.astype(relax.const(rng.integers(-128, 128, (64, 32)).astype("int8")), "float32"))
    real = emit(relax.op.multiply(wide, relax.const(rng.random((1, 32)).astype("float32"))))
    return relax.op.matmul(x, real)


class TestKeepPackedWeights(TensorFunctionConformance):
    PASS = KeepPackedWeights
    WRITES, COUNTS = FREE, (1, 0)

    def fires(self) -> Any:
        return network(decoded, (2, 64))

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the function has no weights in blocks or tiles, and joins no parts": network(
                lambda _, x: relax.op.matmul(x, weights(64, 32)), (2, 64)
            )
        }
