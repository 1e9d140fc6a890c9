"""Element-wise functions name the schedule rule that keeps vectors within their rows, where TVM's do not."""

from collections.abc import Mapping
from typing import Any

from tvm import relax

from mallorn.graphc.tasks.mark_tasks import LINE, MarkElementwiseRows
from tests.unit.graphc.networks import network
from tests.unit.graphc.tensor_function_conformance import TensorFunctionConformance


def doubled(*shape: int) -> Any:
    return network(lambda _, x: relax.op.add(x, x), shape)


class TestMarkElementwiseRows(TensorFunctionConformance):
    PASS = MarkElementwiseRows
    WRITES, COUNTS = f'"schedule_rule": "{LINE}"', (0, 1)

    def fires(self) -> Any:
        return doubled(3, 5, 56)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the function is not element-wise along rows, or names a rule": network(
                lambda _, x: relax.op.sum(x, [-1]), (6, 56)
            ),
            "the rows of the function fill TVM's vectors": doubled(3, 5, 128),
            "the rows of the function do not split into whole or half vectors": doubled(3, 5, 7),
        }
