"""What is made of constants alone is computed at import: the same numbers, no library compiled for them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.graphc.fold.constants import FoldConstantOperators
from tests.unit.graphc.networks import assert_same, network, run
from tests.unit.graphc.pass_conformance import PassConformance, operators

X = np.random.default_rng(0).uniform(0.5, 2, (4, 6)).astype("float32")
Steps = tuple[Callable[[Any], Any], ...]
COMPUTED: dict[str, Steps] = {
    "sums and roots": (lambda c: relax.op.add(c, c), relax.op.sqrt),
    "products and quotients": (
        lambda c: relax.op.multiply(c, relax.const(np.float32(3))),
        lambda c: relax.op.divide(c, relax.const(X)),
    ),
    "differences": (lambda c: relax.op.subtract(c, relax.const(np.float32(3))), relax.op.negative),
    "sums of integers": (
        lambda c: relax.op.astype(c, "int64"),
        lambda c: relax.op.add(c, relax.op.multiply(c, relax.op.negative(c))),
        lambda c: relax.op.astype(c, "float32"),
    ),
    "bounds that may be no numbers": (
        lambda c: relax.op.where(relax.op.isnan(c), relax.const(np.float32(-np.inf)), c),
    ),
    "axes of one": (
        lambda c: relax.op.expand_dims(c, [0, 2]),
        lambda c: relax.op.squeeze(c, [0, 2]),
    ),
    "transposes": (
        lambda c: relax.op.permute_dims(c),
        lambda c: relax.op.reshape(c, (2, 12)),
        lambda c: relax.op.reshape(c, (6, 4)),
        lambda c: relax.op.permute_dims(c, [1, 0]),
    ),
}


def beside_x(*steps: Callable[[Any], Any], values: Any = X) -> Any:
    """The input, and what these steps make of a constant."""

    def body(emit: Callable[[Any], Any], x: Any) -> Any:
        value = relax.const(values)
        for step in steps:
            value = emit(step(value))
        return relax.op.add(x, value)

    return network(body, X.shape, dtype="int8" if values.dtype == "int8" else "float32")


@pytest.mark.parametrize("steps", COMPUTED.values(), ids=COMPUTED)
def test_only_what_needs_an_input_is_left(steps: Steps) -> None:
    mod = beside_x(*steps)
    assert operators(assert_same(FoldConstantOperators()(mod), mod, X, tolerance=0)) == ["add"]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_constant_keeps_its_type(dtype: str) -> None:
    def body(emit: Callable[[Any], Any], x: Any) -> Any:
        return relax.op.add(x, emit(relax.op.negative(relax.const(np.arange(6), dtype))))

    after = FoldConstantOperators()(network(body, (6,), dtype=dtype))
    assert operators(after) == ["add"]
    np.testing.assert_array_equal(run(after, np.arange(6, dtype=dtype)), np.zeros(6, dtype))


def test_a_number_that_is_reshaped_keeps_no_axis() -> None:
    mod = beside_x(lambda c: relax.op.reshape(c, ()), values=X[:1, :1])
    np.testing.assert_array_equal(run(FoldConstantOperators()(mod), X), X + X[0, 0])


def test_what_reads_an_input_stays() -> None:
    mod = network(lambda emit, x: relax.op.add(emit(relax.op.sqrt(x)), relax.const(X)), X.shape)
    assert operators(FoldConstantOperators()(mod)) == ["sqrt", "add"]


def test_what_numpy_rounds_otherwise_is_left_to_tvm() -> None:
    assert operators(FoldConstantOperators()(beside_x(relax.op.exp))) == ["exp", "add"]


def test_quotients_of_integers_are_left_to_tvm_which_rounds_to_zero() -> None:
    halves = beside_x(
        lambda c: relax.op.divide(c, c), lambda c: relax.op.astype(c, "float32"), values=X.astype("int32")
    )
    assert operators(FoldConstantOperators()(halves)) == ["divide", "astype", "add"]


def test_transposed_bytes_are_computed() -> None:
    steps = [relax.op.permute_dims] * 2
    assert operators(FoldConstantOperators()(beside_x(*steps, values=(100 * X).astype("int8")))) == ["add"]


def test_a_network_without_constants_is_left_alone() -> None:
    mod = network(lambda _, x: relax.op.nn.relu(x), X.shape)
    tvm.ir.assert_structural_equal(FoldConstantOperators()(mod), mod)


class TestFoldConstantOperators(PassConformance):
    PASS = FoldConstantOperators
    BEFORE = """
lv[4, 6] = sqrt(constant[4, 6])
gv[4, 6] = add(x0[4, 6], lv[4, 6])
"""
    AFTER = "gv[4, 6] = add(x0[4, 6], constant[4, 6])"

    def fires(self) -> Any:
        return beside_x(relax.op.sqrt)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "an argument of the operator is computed": network(lambda _, x: relax.op.sqrt(x), X.shape),
            "numpy may round values of this type differently from TVM": network(
                lambda emit, x: relax.op.add(x, emit(relax.op.sqrt(relax.const(X.astype("float16"))))),
                X.shape,
                dtype="float16",
            ),
        }
