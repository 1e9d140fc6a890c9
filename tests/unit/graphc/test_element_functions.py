"""All of ONNX's functions of numbers: right from the smallest number to the largest, and without calls.

Each is imported, lowered by the recipe and compared with the same function of twice as many bits, on numbers
of every exponent and at the limits of IEEE 754. Sines, cosines and tangents are right up to 1e9 (ADR 0071).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import relax

from mallorn.graphc.core import pass_runner
from mallorn.graphc.export import compile_network
from mallorn.workers.tvm.compile.explain_kernels import library_calls
from mallorn.workers.tvm.network.extract_tasks import count_operations
from mallorn.workers.tvm.network.graph_recipes import TUNED
from tests.fixtures.onnx_network import onnx_network
from tests.unit.graphc.networks import HASWELL, network

OPSET: Final = 22
SMALL: Final = [value for size in (0.0, 1e-45, 1e-38, 1.0, 2.0, 3.0, 0.5, np.inf) for value in (size, -size)]
LIMITS: Final = np.array([*SMALL, np.nan, 2.0**-126], "float32")
EVERY: Final = np.arange(0, 1 << 32, 104729, dtype="uint64").astype("uint32").view("float32")
NEAR: Final = np.concatenate([np.linspace(-110, 110, 20001), np.linspace(-2, 2, 20001)]).astype("float32")
X: Final = np.concatenate([EVERY, LIMITS, NEAR])[None]
PAIRS: Final = np.concatenate(
    [
        np.stack(np.meshgrid(LIMITS, LIMITS)).reshape(2, -1),
        np.stack([EVERY, EVERY[::-1]]),
        np.stack([np.abs(NEAR), NEAR[::-1]]),
        np.stack([NEAR, np.round(NEAR[::-1])]),
    ],
    axis=1,
)
Reference = Callable[..., Any]


@dataclass(frozen=True)
class Function:
    """An operator of ONNX, what it computes, and how far off the result may be."""

    operator: str
    reference: Reference
    units: float = 0.0  # in the last place
    apart: float = 0.0  # or so far, whatever the result
    constant: float | None = None  # a second operand
    operands: int = 1
    attributes: tuple[tuple[str, Any], ...] = ()
    largest: float = math.inf  # size of an operand up to which this holds
    limits: bool = True  # whether it answers to what is no number as IEEE 754 does


def softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


erf = np.vectorize(math.erf)


def curved(x: Any, height: float = 1.0) -> Any:
    """ELU."""
    return np.where(x < 0, height * np.expm1(np.minimum(x, 0)), x)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + erf(x * 0.5**0.5))


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


ALPHA, GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
FUNCTIONS: Final[Mapping[str, Function]] = {
    "abs": Function("Abs", np.abs),
    "acos": Function("Acos", np.arccos, units=2),
    "acosh": Function("Acosh", np.arccosh, units=3),
    "asin": Function("Asin", np.arcsin, units=3),
    "asinh": Function("Asinh", np.arcsinh, units=3),
    "atan": Function("Atan", np.arctan, units=3.5),
    "atanh": Function("Atanh", np.arctanh, units=3.5),
    "ceil": Function("Ceil", np.ceil),
    "celu": Function("Celu", curved, apart=1e-7),
    "cos": Function("Cos", np.cos, units=3, largest=1e9),
    "cosh": Function("Cosh", np.cosh, units=2.5),
    "elu": Function("Elu", curved, apart=1e-7),
    "erf": Function("Erf", erf, apart=6e-7, limits=False),
    "exp": Function("Exp", np.exp, units=1.5),
    "floor": Function("Floor", np.floor),
    "gelu": Function("Gelu", gelu, units=6, apart=2e-6),
    "gelu, by tanh": Function("Gelu", gelu_tanh, units=6, apart=1e-6, attributes=(("approximate", "tanh"),)),
    "hard sigmoid": Function("HardSigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1), apart=1e-7),
    "hard swish": Function("HardSwish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), units=3, apart=5e-7),
    "leaky relu": Function("LeakyRelu", lambda x: np.where(x < 0, 0.01 * x, x), units=1),
    "log": Function("Log", np.log, units=1.5),
    "mish": Function("Mish", lambda x: x * np.tanh(softplus(x)), units=4, apart=4e-6),
    "mod": Function("Mod", np.fmod, operands=2, attributes=(("fmod", 1),)),
    "neg": Function("Neg", np.negative),
    "pow": Function("Pow", np.power, units=1, operands=2),
    "pow, a cube": Function("Pow", lambda x: x**3, units=1.5, constant=3.0),
    "pow, a fourth": Function("Pow", lambda x: x**4, units=1, constant=4.0),
    "pow, a part": Function("Pow", lambda x: np.power(x, 2.5), units=1, constant=2.5),
    "pow, an inverse": Function("Pow", lambda x: np.power(x, -1.0), units=1, constant=-1.0),
    "pow, a root": Function("Pow", lambda x: np.power(x, 0.5) + 0.0, units=1, constant=0.5, limits=False),
    "reciprocal": Function("Reciprocal", lambda x: 1 / x, units=1),
    "relu": Function("Relu", lambda x: np.maximum(x, 0), limits=False),
    "round": Function("Round", np.round),
    "selu": Function("Selu", lambda x: GAMMA * curved(x, ALPHA), units=1, apart=2e-7),
    "shrink": Function("Shrink", lambda x: np.where(np.abs(x) > 0.5, x, 0)),
    "sigmoid": Function("Sigmoid", lambda x: 1 / (1 + np.exp(-x)), apart=2e-7),
    "sign": Function("Sign", np.sign, limits=False),
    "sin": Function("Sin", np.sin, units=3, largest=1e9),
    "sinh": Function("Sinh", np.sinh, units=2.5),
    "softplus": Function("Softplus", softplus, units=1, apart=1e-6),
    "softsign": Function("Softsign", lambda x: x / (1 + np.abs(x)), units=2),
    "sqrt": Function("Sqrt", np.sqrt, units=1),
    "swish": Function("Swish", lambda x: x / (1 + np.exp(-x)), units=4, apart=2e-6),
    "tan": Function("Tan", np.tan, units=4.5, largest=1e9),
    "tanh": Function("Tanh", np.tanh, apart=4e-7),
    "thresholded relu": Function("ThresholdedRelu", lambda x: np.where(x > 1, x, 0)),
}


def lowered(function: Function, size: int) -> Any:
    """A network of the operator alone, after the recipe."""
    names = [f"x{at}" for at in range(function.operands)]
    constants = {} if function.constant is None else {"constant": np.array(function.constant, "float32")}
    node = helper.make_node(function.operator, [*names, *constants], ["y"], **dict(function.attributes))
    opset = 24 if function.operator == "Swish" else OPSET
    sizes = dict.fromkeys(names, (1, size))
    model = onnx_network([node], sizes, {"y": [1, size]}, opset=opset, **constants)
    target = tvm.target.Target(HASWELL)
    mod = compile_network.import_graph(model, {}, target)
    mod, _ = pass_runner.run_passes(mod, TUNED.model_dump()["before"], target)
    return mod


def compiled(mod: Any) -> Any:
    return relax.build(mod, tvm.target.Target(HASWELL), relax_pipeline=relax.get_pipeline("default_build"))


def errors(function: Function, found: Any, expected: Any) -> Any:
    """How much farther off than it may be, of what is finite."""
    rounded = expected.astype("float32")
    allowed = function.units * np.spacing(np.abs(rounded)) + function.apart
    off = np.where(found == rounded, 0, np.abs(found - expected)) - allowed
    return np.where(np.isfinite(rounded) & np.isfinite(found), off, -np.inf)


def wrong_limits(function: Function, found: Any, expected: Any) -> Any:
    """Where a result is endless or no number, and ought not to be, or the other way round."""
    rounded = expected.astype("float32")
    same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
    ends = ~np.isfinite(found) | ~np.isfinite(rounded)
    return ~same & ends & (function.limits | ~np.isnan(rounded))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_right_for_all_numbers_and_calls_no_library(name: str) -> None:
    function = FUNCTIONS[name]
    arrays = [X] if function.operands == 1 else [operand[None] for operand in PAIRS]
    executable = compiled(lowered(function, arrays[0].shape[1]))
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, arrays)).numpy()
    with np.errstate(all="ignore"):
        expected = function.reference(*(array.astype("float64") for array in arrays))
        off, wrong = errors(function, found, expected), wrong_limits(function, found, expected)
    off[np.abs(arrays[0]) > function.largest] = -np.inf
    at = np.unravel_index(off.argmax(), off.shape)
    assert off[at] <= 0, [array[at] for array in arrays] + [found[at], expected[at]]
    assert not wrong.any(), [array[wrong][:3] for array in arrays] + [found[wrong][:3], expected[wrong][:3]]
    assert libraries(executable) == []


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_of_enormous_angles_are_between_one_and_minus_one(name: str) -> None:
    angles = X[:, np.isfinite(X[0]) & (np.abs(X[0]) > FUNCTIONS[name].largest)]
    executable = compiled(lowered(FUNCTIONS[name], angles.shape[1]))
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(angles)).numpy()
    assert angles.max() > 1e38
    assert np.abs(found).max() <= 1 + 1e-6


@pytest.mark.parametrize("name", ["sin", "pow", "mod", "elu"])
def test_a_function_is_a_task_whose_work_is_counted(name: str) -> None:
    (task,) = compile_network.list_tuning_tasks(lowered(FUNCTIONS[name], 64), tvm.target.Target(HASWELL))
    assert count_operations(task.dispatched[0]) >= 10 * 64


def libraries(executable: Any) -> list[str]:
    """The functions of C's library that the code calls."""
    (code,) = (module.inspect_source("asm") for module in executable.mod.imports)
    return library_calls("llvm", code)


def test_calls_of_a_library_are_found() -> None:
    target = tvm.target.Target(HASWELL)
    mod = network(lambda _, x: relax.op.sin(x), (1, 64))
    with target:
        lowered = relax.transform.LegalizeOps()(mod)
    assert libraries(relax.build(lowered, target)) == ["sinf"]
