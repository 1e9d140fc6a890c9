"""Smooth functions become vectors: no library is called for a number, and the numbers stay what they were."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tvm import relax

from mallorn.graphc.elementwise.vectorize_smooth_functions import VectorizeSmoothFunctions
from tests.unit.graphc.networks import network, random, run
from tests.unit.graphc.pass_conformance import PassConformance

WIDE = np.concatenate([np.linspace(-90, 90, 4001), np.logspace(-37, 38, 999)]).astype("float32")[None]
POSITIVE = np.abs(WIDE) + np.float32(1e-37)


def power(exponent: Any) -> Callable[[Any], Any]:
    return lambda x: relax.op.power(x, relax.const(exponent, "float32"))


FUNCTIONS = {
    "sigmoid": (relax.op.sigmoid, WIDE),
    "silu": (relax.op.nn.silu, WIDE[:, :4001]),
    "gelu": (relax.op.nn.gelu, WIDE[:, :4001]),
    "gelu_tanh": (relax.op.nn.gelu_tanh, WIDE[:, :4001]),
    "log": (relax.op.log, POSITIVE),
    "log_softmax": (lambda x: relax.op.nn.log_softmax(x, -1), WIDE[:, :4001]),
    "square": (power(2.0), WIDE[:, :4001]),
    "cube": (power(3.0), WIDE[:, :4001]),
    "sine": (relax.op.sin, WIDE[:, :4001]),
    "power": (power(2.5), POSITIVE[:, :4001]),
}


def of(function: Callable[[Any], Any], x: Any) -> Any:
    return network(lambda _, data: function(data), x.shape, dtype=str(x.dtype))


def libraries(mod: Any) -> bool:
    """Whether what LLVM has no vectors for is left."""
    steps = relax.transform.FastMathTransform(), relax.transform.LegalizeOps()
    for step in steps:
        mod = step(mod)
    return any(
        f"T.{name}(" in mod.script() for name in ("sigmoid", "erf", "tanh", "exp", "log", "pow", "sin")
    )


@pytest.mark.parametrize(("function", "x"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_smooth_function_is_written_without_calls_and_stays_what_it_was(function: Any, x: Any) -> None:
    mod = of(function, x)
    assert libraries(mod)
    assert not libraries(VectorizeSmoothFunctions()(mod))
    np.testing.assert_allclose(run(VectorizeSmoothFunctions()(mod), x), run(mod, x), rtol=2e-6, atol=1e-6)


def test_operands_of_a_power_are_broadcast() -> None:
    row, column = np.abs(random(1, 8)), random(3, 1)
    mod = network(lambda _, x, y: relax.op.power(x, y), row.shape, column.shape)
    np.testing.assert_allclose(run(VectorizeSmoothFunctions()(mod), row, column), row**column, rtol=1e-6)


def test_a_logarithm_ends_where_numbers_end() -> None:
    x = np.array([[0.0, -0.0, -1.0, np.inf, np.nan, 1.0]], dtype="float32")
    expected = np.array([[-np.inf, -np.inf, np.nan, np.inf, np.nan, 0.0]], dtype="float32")
    np.testing.assert_array_equal(run(VectorizeSmoothFunctions()(of(relax.op.log, x)), x), expected)


class TestVectorizeSmoothFunctions(PassConformance):
    PASS = VectorizeSmoothFunctions
    BEFORE = "gv[3, 2] = sigmoid(x0[3, 2])"
    AFTER = """
lv[3, 2] = negative(x0[3, 2])
lv1[3, 2] = fast_exp(lv[3, 2])
lv2[3, 2] = add(constant[], lv1[3, 2])
gv[3, 2] = divide(constant[], lv2[3, 2])
"""

    def fires(self) -> Any:
        return network(lambda _, x: relax.op.sigmoid(x), (3, 2))

    def leaves(self) -> Mapping[str, Any]:
        ones, halves = np.ones((3, 2), "float32"), np.ones((3, 2), "float16")
        return {
            "LLVM vectorises this power already": of(power(0.5), ones),
            "the result is float16, not float32": of(relax.op.sigmoid, halves),
        }
