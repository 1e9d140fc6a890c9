"""Average pools come before the pointwise convolution whose results they read."""

from collections.abc import Mapping
from typing import Any

import pytest
from tvm import relax

from mallorn.graphc.conv.move_pool_before_pointwise import MovePoolBeforePointwise
from tests.unit.graphc.networks import NHWC, network, weights
from tests.unit.graphc.pass_conformance import PassConformance

IMAGE = (1, 6, 6, 8)


def pooled(emit: Any, x: Any, **attrs: Any) -> Any:
    options = {"pool_size": (2, 2), "strides": (2, 2), "layout": "NHWC"} | attrs
    return relax.op.nn.avg_pool2d(x, **options)


def pointwise(emit: Any, x: Any, kernel: int = 1) -> Any:
    return emit(relax.op.nn.conv2d(x, weights(kernel, kernel, 8, 4), **NHWC))


class TestMovePoolBeforePointwise(PassConformance):
    PASS = MovePoolBeforePointwise
    BEFORE = """
lv[1, 6, 6, 4] = nn.conv2d(x0[1, 6, 6, 8], constant[1, 1, 8, 4])
lv1[1, 6, 6, 4] = add(lv[1, 6, 6, 4], constant[1, 1, 1, 4])
gv[1, 3, 3, 4] = nn.avg_pool2d(lv1[1, 6, 6, 4])
"""
    AFTER = """
lv[1, 3, 3, 8] = nn.avg_pool2d(x0[1, 6, 6, 8])
lv1[1, 3, 3, 4] = nn.conv2d(lv[1, 3, 3, 8], constant[1, 1, 8, 4])
gv[1, 3, 3, 4] = add(lv1[1, 3, 3, 4], constant[1, 1, 1, 4])
"""

    def fires(self) -> Any:
        def body(emit: Any, x: Any) -> Any:
            return pooled(emit, emit(relax.op.add(pointwise(emit, x), weights(1, 1, 1, 4))))

        return network(body, IMAGE)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the pooling pads or rounds up, or channels are not last": network(
                lambda emit, x: pooled(emit, pointwise(emit, x), padding=1), IMAGE
            ),
            "the pooling does not reduce the number of pixels": network(
                lambda emit, x: pooled(emit, pointwise(emit, x), pool_size=(1, 1), strides=(1, 1)), IMAGE
            ),
            "no pointwise convolution computes the input for this operator only": network(
                lambda emit, x: pooled(emit, pointwise(emit, x, 3)), (1, 8, 8, 8)
            ),
        }


@pytest.mark.parametrize(
    "follow",
    [
        lambda y: relax.op.nn.relu(y),
        lambda y: relax.op.add(y, weights(1, 6, 6, 1)),
        lambda y: relax.op.multiply(y, weights(1, 1, 1, 4)),
    ],
    ids=["a limit", "a summand a pixel", "a factor"],
)
def test_it_stays_behind_what_is_more_than_a_summand_a_channel(follow: Any) -> None:
    mod = network(lambda emit, x: pooled(emit, emit(follow(pointwise(emit, x)))), IMAGE)
    assert MovePoolBeforePointwise().apply(mod)[1].fired == 0
