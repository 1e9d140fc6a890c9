"""Reductions name the schedule rule that makes vectors of them; products and odd lengths keep TVM's."""

from collections.abc import Mapping
from typing import Any

from tvm import relax

from mallorn.graphc.tasks.mark_tasks import FOLD, MarkReductions
from tests.unit.graphc.networks import network, weights
from tests.unit.graphc.tensor_function_conformance import TensorFunctionConformance


def summed(rows: int, columns: int) -> Any:
    return network(lambda _, x: relax.op.sum(x, [-1], keepdims=True), (rows, columns))


class TestMarkReductions(TensorFunctionConformance):
    PASS = MarkReductions
    WRITES, COUNTS = f'"schedule_rule": "{FOLD}"', (0, 1)

    def fires(self) -> Any:
        return summed(6, 128)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the function has no reduction": network(lambda _, x: relax.op.add(x, x), (6, 128)),
            "the function sums products": network(lambda _, x: relax.op.matmul(x, weights(128, 4)), (6, 128)),
            "no axis of the function splits into vectors": summed(6, 131),
        }
