"""Slices of channels are put beside each other in vectors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tvm import relax

from mallorn.graphc.layout.join_rows import CopyChannelRuns
from tests.unit.graphc.networks import NHWC, network, random, run, weights
from tests.unit.graphc.pass_conformance import PassConformance

IMAGE = (1, 3, 5, 24)


def sliced(x: Any, first: int, end: int) -> Any:
    return relax.op.strided_slice(x, [3], [first], [end])


def pointwise(x: Any) -> Any:
    return relax.op.nn.conv2d(x, weights(1, 1, int(x.ty.shape[-1]), 8), **NHWC)


def of_two(body: Any) -> Any:
    return network(body, IMAGE, IMAGE)


class TestCopyChannelRuns(PassConformance):
    PASS = CopyChannelRuns
    BEFORE = """
lv[1, 3, 5, 20] = strided_slice(x0[1, 3, 5, 24], (3), (4), (24))
lv1[1, 3, 5, 44] = concat((lv[1, 3, 5, 20], x1[1, 3, 5, 24]))
gv[1, 3, 5, 8] = nn.conv2d(lv1[1, 3, 5, 44], constant[1, 1, 44, 8])
"""
    AFTER = """
lv1[1, 3, 5, 44] = copy_runs(x0[1, 3, 5, 24], x1[1, 3, 5, 24])
gv[1, 3, 5, 8] = nn.conv2d(lv1[1, 3, 5, 44], constant[1, 1, 44, 8])
"""

    def fires(self) -> Any:
        return of_two(lambda emit, x, z: pointwise(emit(relax.op.concat([emit(sliced(x, 4, 24)), z], 3))))

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the axis of the concat is not the last of several": of_two(
                lambda _, x, z: relax.op.concat([x, z], 1)
            ),
            "none of the parts of the concat is a slice of channels": of_two(
                lambda emit, x, z: pointwise(emit(relax.op.concat([x, z], 3)))
            ),
            "TVM can fuse the concat with the operators that read the result": of_two(
                lambda emit, x, z: relax.op.nn.relu(emit(relax.op.concat([emit(sliced(x, 0, 8)), z], 3)))
            ),
        }


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_every_channel_goes_where_it_belongs(lanes: int) -> None:
    def body(emit: Any, x: Any, z: Any) -> Any:
        parts = [sliced(x, 3, 20), z, sliced(z, 7, 8), sliced(x, 0, 2)]
        return relax.op.concat([emit(part) if part is not z else z for part in parts], -1)

    after = CopyChannelRuns(lanes)(of_two(body))
    x, z = random(*IMAGE), random(1, 3, 5, 24)[:, ::-1].copy()
    expected = np.concatenate([x[..., 3:20], z, z[..., 7:8], x[..., :2]], -1)
    assert len(after.functions) == 2
    assert np.array_equal(run(after, x, z), expected)


def test_parts_of_rows_or_with_steps_are_copied_as_they_are() -> None:
    def body(emit: Any, x: Any, z: Any) -> Any:
        even = emit(relax.op.strided_slice(z, [3], [0], [24], [2]))
        return relax.op.concat([emit(sliced(x, 8, 16)), even], 3)

    mod, (x, z) = of_two(body), (random(*IMAGE), random(*IMAGE) + 1)
    after, report = CopyChannelRuns().apply(mod)
    assert report.fired == 1
    assert np.array_equal(run(after, x, z), np.concatenate([x[..., 8:16], z[..., ::2]], 3))


def test_vectors_are_left() -> None:
    mod = network(
        lambda emit, x: relax.op.concat([emit(relax.op.strided_slice(x, [0], [1], [3])), x], 0), (8,)
    )
    assert CopyChannelRuns().apply(mod)[1].fired == 0
