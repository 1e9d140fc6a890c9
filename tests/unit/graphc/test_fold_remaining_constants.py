"""What numpy leaves is computed by TVM, which is asked only where something is made of constants."""

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import relax

from mallorn.graphc.core.graph_pass import Report
from mallorn.graphc.core.pass_registry import make_passes
from mallorn.graphc.core.pass_runner import run_passes as run_steps
from mallorn.graphc.fold.constants import FoldRemainingConstants
from mallorn.workers.tvm.network.graph_recipes import TUNED, TUNED_GPU
from tests.unit.graphc.networks import HASWELL, assert_same, network, weights
from tests.unit.graphc.pass_conformance import operators
from tests.unit.graphc.planted_errors import modules_where_a_method_raises

SIZES = (4, 6)
Made = Callable[[Any], Any]
LEFT: dict[str, Made] = {
    "a function that numpy rounds otherwise": lambda emit: relax.op.exp(weights(*SIZES)),
    "a chain of them": lambda emit: relax.op.exp(emit(relax.op.sin(weights(*SIZES)))),
    "parts that are joined": lambda emit: relax.op.concat([weights(2, 6), weights(2, 6)], axis=0),
    "what is made of a shape": lambda emit: relax.op.ones(SIZES, "float32"),
}


def beside_x(made: Made) -> Any:
    return network(lambda emit, x: relax.op.add(x, emit(made(emit))), SIZES)


def applied(mod: Any) -> tuple[Any, Report]:
    return FoldRemainingConstants().apply(mod)


@pytest.mark.parametrize("made", LEFT.values(), ids=LEFT)
def test_what_is_made_of_constants_is_computed(made: Made) -> None:
    mod = beside_x(made)
    after, report = applied(mod)
    assert (report.fired, operators(assert_same(after, mod, tolerance=0))) == (1, ["add"])


def test_shapes_that_operators_read_are_written_into_them() -> None:
    """What follows reads sizes there."""
    mod = network(lambda emit, x: relax.op.reshape(x, emit(relax.ShapeExpr([6, 4]))), SIZES)
    after, _ = applied(mod)
    (binding,) = after["main"].body.blocks[0].bindings
    assert isinstance(binding.value.args[1], relax.ShapeExpr)


def test_a_network_whose_constants_only_meet_inputs_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relax.transform, "FoldConstant", lambda: pytest.fail("TVM was asked"))
    mod = network(lambda emit, x: relax.op.exp(emit(relax.op.add(x, weights(*SIZES)))), SIZES)
    after, report = applied(mod)
    assert (after, report.fired) == (mod, 0)


@pytest.mark.parametrize("recipe", [TUNED, TUNED_GPU], ids=["tuned", "tuned-gpu"])
def test_recipes_compute_what_numpy_left(recipe: Any) -> None:
    mod = beside_x(LEFT["a chain of them"])
    fold = [step for step in recipe.model_dump()["before"] if step["pass"] == "fold_constant_operators"]
    after, reports = run_steps(mod, fold, tvm.target.Target(HASWELL))
    assert operators(after) == ["add"]
    assert FoldRemainingConstants.name in {report.name for report in reports}


def test_a_network_goes_without_it_where_a_method_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = beside_x(LEFT["a chain of them"])
    for after in modules_where_a_method_raises(FoldRemainingConstants, TUNED, mod, HASWELL, monkeypatch):
        assert_same(after, mod)


def test_it_follows_the_constants_that_numpy_computes() -> None:
    names = [type(made) for made in make_passes({"pass": "fold_constant_operators", "args": []})]
    assert names[1:] == [FoldRemainingConstants]
