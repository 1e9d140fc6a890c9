"""Products that read and write through permutations: the same numbers, and no copies around them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tvm import relax

from mallorn.graphc.matmul.fuse_transposes_into_batched_matmul import FuseTransposesIntoBatchedMatmul
from tests.unit.graphc.networks import difference, run
from tests.unit.graphc.pass_conformance import PassConformance

X, W = (2, 5, 3, 4), (2, 3, 4, 6)  # a product of (2, 3) pairs of matrices once X is permuted
HEADS = [0, 2, 1, 3]


def network(shapes: list[tuple[int, ...]], body: Callable[..., Any]) -> Any:
    """A module of what is computed from inputs of these shapes."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            computed = [builder.emit(relax.op.negative(x)) for x in inputs]
            result = builder.emit_output(body(builder, *computed))
        builder.emit_func_output(result)
    return builder.get()


def attention(builder: Any, x: Any, w: Any) -> Any:
    """A transpose before the product, and one behind it."""
    product = builder.emit(relax.op.matmul(builder.emit(relax.op.permute_dims(x, HEADS)), w))
    return relax.op.permute_dims(product, HEADS)


def after(mod: Any) -> Any:
    return relax.transform.DeadCodeElimination()(FuseTransposesIntoBatchedMatmul()(mod))


def transposes(mod: Any) -> int:
    return mod.script().count("R.permute_dims")


def random(shapes: list[tuple[int, ...]]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def assert_same(mod: Any, shapes: list[tuple[int, ...]]) -> None:
    arrays = random(shapes)
    assert difference(run(after(mod), *arrays), run(mod, *arrays)) <= 1e-5


def test_transposes_around_a_product_are_gone() -> None:
    mod = network([X, W], attention)
    assert_same(mod, [X, W])
    assert transposes(after(mod)) == 0


@pytest.mark.parametrize(
    ("shapes", "axes"),
    [([(3, 5, 2, 4), W], [2, 0, 1, 3]), ([(5, 2, 4), (2, 4, 6)], [1, 0, 2])],
    ids=["a cycle", "three axes"],
)
def test_any_order_of_the_other_axes_will_do(shapes: Any, axes: list[int]) -> None:
    def body(builder: Any, x: Any, w: Any) -> Any:
        return relax.op.matmul(builder.emit(relax.op.permute_dims(x, axes)), w)

    mod = network(shapes, body)
    assert_same(mod, shapes)
    assert transposes(after(mod)) == 0


def test_the_second_factor_may_be_the_permuted_one() -> None:
    def body(builder: Any, x: Any, w: Any) -> Any:
        return relax.op.matmul(w, builder.emit(relax.op.permute_dims(x, HEADS)))

    shapes = [(2, 6, 3, 4), (2, 3, 5, 6)]
    mod = network(shapes, body)
    assert_same(mod, shapes)
    assert transposes(after(mod)) == 0


def last_axis(builder: Any, x: Any, w: Any) -> Any:
    return relax.op.matmul(x, builder.emit(relax.op.permute_dims(w, [0, 1, 3, 2])))


def read_twice(builder: Any, x: Any, w: Any) -> Any:
    product = builder.emit(relax.op.matmul(x, w))
    permuted = builder.emit(relax.op.permute_dims(product, [1, 0, 2, 3]))
    return relax.op.add(product, permuted)


def weighted(builder: Any, x: Any) -> Any:
    weights = relax.const(random([(2, 3, 4, 6)])[0])
    return relax.op.matmul(builder.emit(relax.op.permute_dims(x, HEADS)), weights)


def squared(builder: Any, x: Any) -> Any:
    return relax.op.matmul(*(builder.emit(relax.op.permute_dims(x, HEADS)) for _ in range(2)))


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
        return network([X, W], attention)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the factors are not transposed, and the sizes can be tiled": network(
                [(2, 3, 5, 4), (2, 3, 6, 4)], last_axis
            ),
            "other operators read the product, too": network([(3, 3, 5, 4), (3, 3, 4, 6)], read_twice),
            "a factor of the product is constant": network([X], weighted),
            "both factors are the same tensor": network([(2, 4, 3, 4)], squared),
        }


def test_stacks_of_different_sizes_stay_as_they_are() -> None:
    def body(builder: Any, x: Any, w: Any) -> Any:
        return relax.op.matmul(builder.emit(relax.op.permute_dims(x, HEADS)), w)

    mod = network([X, (1, 3, 4, 6)], body)
    assert after(mod).script() == mod.script()
