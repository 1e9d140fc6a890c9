"""The conformance kit of graph passes: what each must hold, on the smallest graph where it fires."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import tvm
from tvm import relax

from mallorn.core.values.graph_report import StoredRecipe
from mallorn.graphc.core.graph_pass import Pass, Report
from mallorn.graphc.core.pass_runner import run_passes as run_steps
from mallorn.workers.tvm.network.graph_recipes import BF16, DIRECT, FP16_CPU, FP16_GPU, TUNED, TUNED_GPU
from tests.unit.graphc.networks import HASWELL, difference, random_of, run
from tests.unit.graphc.planted_errors import modules_where_a_method_raises, step_of

RECIPES = TUNED, DIRECT, BF16, FP16_CPU, TUNED_GPU, FP16_GPU


class PassConformance:
    """Subclass it once a pass, with the smallest graph where it fires, and graphs that it leaves."""

    PASS: ClassVar[type[Pass[Any]]]
    BEFORE: ClassVar[str]  # the graph of `fires`, as `graph_text` writes it
    AFTER: ClassVar[str]
    LANES: ClassVar[tuple[int, ...]] = (8,)  # its arguments
    TARGET: ClassVar[str] = HASWELL
    RECIPE: ClassVar[StoredRecipe] = TUNED  # in which it fires on that graph
    TOLERANCE: ClassVar[float] = 1e-5

    def fires(self) -> Any:
        """The module in which it rewrites one call."""
        raise NotImplementedError

    def reference(self) -> Any:
        """What computes the same numbers and lowers without the pass."""
        return self.fires()

    def leaves(self) -> Mapping[str, Any]:
        """Modules that it leaves as they are, by the reason it gives."""
        raise NotImplementedError

    def of_a_model(self) -> Any:
        """A module as models are imported, in which the pass fires after those before it."""
        return self.fires()

    def make(self) -> Pass[Any]:
        return self.PASS(*self.LANES)

    def apply(self, mod: Any) -> tuple[Any, Report]:
        with tvm.target.Target(self.TARGET):
            return self.make().apply(mod)

    def test_it_rewrites_the_smallest_graph(self) -> None:
        after, report = self.apply(self.fires())
        assert graph_text(self.fires()) == self.BEFORE.strip()
        assert graph_text(after) == self.AFTER.strip()
        assert (report.fired, report.skipped) == (1, "")

    def test_it_keeps_the_numbers(self) -> None:
        after, _ = self.apply(self.fires())
        self.keeps_numbers(after)

    def test_a_second_time_changes_nothing(self) -> None:
        once, _ = self.apply(self.fires())
        twice, report = self.apply(once)
        assert report.fired == 0
        assert graph_text(twice) == graph_text(once)

    def test_it_says_why_it_leaves_others(self) -> None:
        for reason, mod in self.leaves().items():
            after, report = self.apply(mod)
            assert (report.fired, report.left[reason]) == (0, 1), report
            assert graph_text(after) == graph_text(mod)

    def test_it_fires_in_a_whole_recipe_which_keeps_the_numbers(self) -> None:
        after, reports = self._recipe(self.fires())
        assert sum(report.fired for report in reports if report.name == self.PASS.name) >= 1
        self.keeps_numbers(after)

    def test_it_is_switched_off_by_name_unless_a_module_needs_it(self) -> None:
        _, reports = self._recipe(self.fires(), without=[self.PASS.name])
        fired = sum(report.fired for report in reports if report.name == self.PASS.name)
        assert bool(fired) == self.PASS.is_required

    def test_a_network_goes_without_it_where_a_method_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        planted = self.PASS, self.RECIPE, self.of_a_model(), self.TARGET, monkeypatch
        for after in modules_where_a_method_raises(*planted):
            self.keeps_numbers(after)

    def test_recipes_list_it(self) -> None:
        name = step_of(self.PASS)
        assert any(step.name == name for recipe in RECIPES for step in recipe.before)

    def _recipe(self, mod: Any, without: Any = ()) -> tuple[Any, list[Report]]:
        steps = self.RECIPE.model_dump()["before"]
        return run_steps(mod, steps, tvm.target.Target(self.TARGET), without)

    def _error(self, after: Any) -> float:
        mod = self.reference()
        types = [param.ty for param in mod["main"].params]
        arrays = [random_of(str(each.dtype), *map(int, each.shape)) for each in types]
        return difference(self.computed(after, *arrays), run(mod, *arrays))

    def keeps_numbers(self, after: Any) -> None:
        assert self._error(after) <= self.TOLERANCE

    def computed(self, after: Any, *arrays: Any) -> Any:
        """The numbers of a rewritten module."""
        return run(after, *arrays)


def graph_text(mod: Any) -> str:
    """What a network's graph computes, a line a call, with the sizes of all that it reads."""
    bindings = (binding for block in mod["main"].body.blocks for binding in block.bindings)
    return "\n".join(f"{_text(each.var)} = {_text(each.value)}" for each in bindings)


def operators(mod: Any) -> list[str]:
    """Return the names of a graph's operators and of the tensor functions that it calls."""
    return [line.partition(" = ")[2].partition("(")[0] for line in graph_text(mod).splitlines()]


def _text(value: Any) -> str:
    if isinstance(value, relax.Call):
        return _call_text(value)
    if isinstance(value, relax.Tuple):
        return f"({', '.join(map(_text, value.fields))})"
    if isinstance(value, relax.ShapeExpr):
        return str(list(map(int, value.values)))
    if isinstance(value, tvm.tirx.IntImm):
        return str(int(value))
    if isinstance(value, relax.TupleGetItem):
        return f"{value.tuple_value.name}.{value.index}"
    if isinstance(value.ty, relax.TupleType):
        return str(value.name)
    sizes = list(map(int, value.ty.shape))
    return f"{value.name if isinstance(value, relax.Var) else 'constant'}{sizes}"


def _call_text(call: Any) -> str:
    name, args = str(call.op.name).removeprefix("relax."), list(call.args)
    if name == "call_tir":
        name, args = args[0].name_hint, list(args[1].fields)
    return f"{name}({', '.join(map(_text, args))})"
