"""Products that read and write through permutations: the same numbers, and no copies around them."""

from collections.abc import Mapping
from typing import Any

import pytest
from tvm import relax

from mallorn.graphc.matmul.fuse_transposes_into_batched_matmul import FuseTransposesIntoBatchedMatmul
from tests.unit.graphc import networks
from tests.unit.graphc.networks import Body, assert_same
from tests.unit.graphc.pass_conformance import PassConformance

X, W = (2, 5, 3, 4), (2, 3, 4, 6)  # a product of (2, 3) pairs of matrices once X is permuted
HEADS = [0, 2, 1, 3]


def network(body: Body, *shapes: tuple[int, ...]) -> Any:
    """A module of what is computed from the negatives of inputs of these shapes."""
    return networks.network(lambda emit, *xs: body(emit, *(emit(relax.op.negative(x)) for x in xs)), *shapes)


def attention(emit: Any, x: Any, w: Any) -> Any:
    """A transpose before the product, and one behind it."""
    product = emit(relax.op.matmul(emit(relax.op.permute_dims(x, HEADS)), w))
    return relax.op.permute_dims(product, HEADS)


def after(mod: Any) -> Any:
    return relax.transform.DeadCodeElimination()(FuseTransposesIntoBatchedMatmul()(mod))


def turned(axes: list[int]) -> Body:
    return lambda emit, x, w: relax.op.matmul(emit(relax.op.permute_dims(x, axes)), w)


def second(emit: Any, x: Any, w: Any) -> Any:
    return relax.op.matmul(w, emit(relax.op.permute_dims(x, HEADS)))


@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        (attention, [X, W]),
        (turned([2, 0, 1, 3]), [(3, 5, 2, 4), W]),
        (turned([1, 0, 2]), [(5, 2, 4), (2, 4, 6)]),
        (second, [(2, 6, 3, 4), (2, 3, 5, 6)]),
    ],
    ids=["around a product", "a cycle", "three axes", "of the second factor"],
)
def test_transposes_around_a_product_are_gone(body: Body, shapes: list[tuple[int, ...]]) -> None:
    mod = network(body, *shapes)
    assert "R.permute_dims" not in assert_same(after(mod), mod).script()


def last_axis(emit: Any, x: Any, w: Any) -> Any:
    return relax.op.matmul(x, emit(relax.op.permute_dims(w, [0, 1, 3, 2])))


def read_twice(emit: Any, x: Any, w: Any) -> Any:
    product = emit(relax.op.matmul(x, w))
    return relax.op.add(product, emit(relax.op.permute_dims(product, [1, 0, 2, 3])))


def weighted(emit: Any, x: Any) -> Any:
    return relax.op.matmul(emit(relax.op.permute_dims(x, HEADS)), networks.weights(2, 3, 4, 6))


def squared(emit: Any, x: Any) -> Any:
    return relax.op.matmul(*(emit(relax.op.permute_dims(x, HEADS)) for _ in range(2)))


class TestFuseTransposesIntoBatchedMatmul(PassConformance):
    PASS = FuseTransposesIntoBatchedMatmul
    BEFORE = """
lv[2, 5, 3, 4] = negative(x0[2, 5, 3, 4])
lv1[2, 3, 4, 6] = negative(x1[2, 3, 4, 6])
lv2[2, 3, 5, 4] = permute_dims(lv[2, 5, 3, 4])
lv3[2, 3, 5, 6] = matmul(lv2[2, 3, 5, 4], lv1[2, 3, 4, 6])
gv[2, 5, 3, 6] = permute_dims(lv3[2, 3, 5, 6])
"""
    AFTER = """
lv[2, 5, 3, 4] = negative(x0[2, 5, 3, 4])
lv1[2, 3, 4, 6] = negative(x1[2, 3, 4, 6])
gv[2, 5, 3, 6] = heads_matmul(lv[2, 5, 3, 4], lv1[2, 3, 4, 6])
"""

    def fires(self) -> Any:
        return network(attention, X, W)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the factors are not transposed, and the sizes can be tiled": network(
                last_axis, (2, 3, 5, 4), (2, 3, 6, 4)
            ),
            "other operators read the product, too": network(read_twice, (3, 3, 5, 4), (3, 3, 4, 6)),
            "a factor of the product is constant": network(weighted, X),
            "both factors are the same tensor": network(squared, (2, 4, 3, 4)),
        }


def test_stacks_of_different_sizes_stay_as_they_are() -> None:
    mod = network(turned(HEADS), X, (1, 3, 4, 6))
    assert after(mod).script() == mod.script()
