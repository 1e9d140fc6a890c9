"""Our graph passes leave alone what has sizes that only the data will tell."""

from typing import Any

import pytest
import tvm
from tvm import relax

from mallorn.graphc.core.pass_registry import OWN_PASSES
from mallorn.graphc.core.pass_runner import run_passes
from mallorn.workers.tvm.network.graph_recipes import BF16, DIRECT, TUNED
from tests.unit.graphc import networks
from tests.unit.graphc.networks import NHWC, Body, weights

ABLE = {"kind": "llvm", "mcpu": "znver5", "num-cores": 1}
OURS = [
    step
    for recipe in (TUNED, DIRECT, BF16)
    for step in recipe.model_dump()["before"]
    if step["pass"] in OWN_PASSES
]
UNKNOWN = relax.TensorType(dtype="float32", ndim=4)


def attention(emit: Any, x: Any) -> Any:
    left, right = (emit(relax.op.permute_dims(x, axes)) for axes in ([1, 0, 2, 3], [1, 0, 3, 2]))
    return relax.op.matmul(left, right)


BODIES: dict[str, Body] = {
    "softmax": lambda _, x: relax.op.nn.softmax(x),
    "layer norm": lambda _, x: relax.op.nn.layer_norm(x, weights(16), weights(16), axes=[-1]),
    "transpose": lambda _, x: relax.op.permute_dims(x, [0, 1, 3, 2]),
    "attention": attention,
    "product": lambda _, x: relax.op.matmul(x, weights(16, 32)),
    "pointwise": lambda _, x: relax.op.nn.conv2d(x, weights(1, 1, 16, 24), **NHWC),
    "three by three": lambda _, x: relax.op.nn.conv2d(x, weights(3, 3, 16, 32), padding=1, **NHWC),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("some", [True, False], ids=["one size unknown", "all sizes unknown"])
def test_they_leave_it_as_it_is(some: bool, body: Body) -> None:
    mod = networks.network(body, (tvm.tirx.Var("n", "int64"), 4, 16, 16) if some else UNKNOWN)
    for step in OURS:
        after, _ = run_passes(mod, [step], tvm.target.Target(ABLE))
        assert after.script() == mod.script(), step["pass"]
