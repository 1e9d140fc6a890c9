"""The conformance kit of passes over tensor functions: what each must hold, on a network where it fires."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
import tvm

from mallorn.core.values.graph_report import StoredRecipe
from mallorn.graphc.core.graph_pass import TensorFunctionPass
from mallorn.graphc.core.pass_runner import run_passes as run_steps
from mallorn.workers.tvm.network.graph_recipes import BF16, DIRECT, TUNED
from tests.unit.graphc import networks
from tests.unit.graphc.networks import HASWELL, random
from tests.unit.graphc.planted_errors import modules_where_a_method_raises


class TensorFunctionConformance:
    """Subclass it once a pass, with a network where it fires once, and networks that it leaves."""

    PASS: ClassVar[type[TensorFunctionPass[Any]]]
    WRITES: ClassVar[str]  # what it writes into the function, or takes from it
    COUNTS: ClassVar[tuple[int, int]]  # how often that stands in the module before and after
    LANES: ClassVar[int] = 8
    RECIPES: ClassVar[tuple[StoredRecipe, ...]] = (TUNED, DIRECT, BF16)  # all that list it, a usual one first
    TARGET: ClassVar[str] = HASWELL
    TOLERANCE: ClassVar[float] = 0  # relative error of what it rounds

    def fires(self) -> Any:
        """The network of whose functions it rewrites one."""
        raise NotImplementedError

    def leaves(self) -> Mapping[str, Any]:
        """Networks that it leaves as they are, by the reason it gives."""
        raise NotImplementedError

    def lowered(self, network: Any) -> Any:
        """Its tensor functions, as the pass gets them in a recipe."""
        before = self.RECIPES[0].model_dump()["before"]
        names = [step["pass"] for step in before]
        steps = before[: names.index(self.PASS.name)]
        return run_steps(network, steps, tvm.target.Target(self.TARGET))[0]

    def test_it_rewrites_one_function(self) -> None:
        before = self.lowered(self.fires())
        after, report = self.PASS(self.LANES).apply(before)
        assert (report.fired, report.skipped) == (1, "")
        assert (before.script().count(self.WRITES), after.script().count(self.WRITES)) == self.COUNTS

    def test_it_keeps_the_numbers(self) -> None:
        before = self.lowered(self.fires())
        after = self.PASS(self.LANES)(before)
        np.testing.assert_allclose(_numbers(after), _numbers(before), self.TOLERANCE, self.TOLERANCE)

    def test_a_second_time_changes_nothing(self) -> None:
        once = self.PASS(self.LANES)(self.lowered(self.fires()))
        twice, report = self.PASS(self.LANES).apply(once)
        assert report.fired == 0
        tvm.ir.assert_structural_equal(twice, once)

    def test_it_says_why_it_leaves_others(self) -> None:
        for reason, network in self.leaves().items():
            before = self.lowered(network)
            after, report = self.PASS(self.LANES).apply(before)
            assert (report.fired, report.left[reason] > 0) == (0, True), report
            tvm.ir.assert_structural_equal(after, before)

    def test_it_fires_in_a_whole_recipe_and_is_switched_off_by_name_unless_a_module_needs_it(self) -> None:
        for without, fires in (([], True), ([self.PASS.name], self.PASS.is_required)):
            steps = self.RECIPES[0].model_dump()["before"]
            _, reports = run_steps(self.fires(), steps, tvm.target.Target(self.TARGET), without)
            assert any(report.fired for report in reports if report.name == self.PASS.name) == fires

    def test_a_network_goes_without_it_where_a_method_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        recipe, tolerance = self.RECIPES[0], max(1e-5, self.TOLERANCE)
        steps = recipe.model_dump()["before"]
        expected = _numbers(run_steps(self.fires(), steps, tvm.target.Target(self.TARGET))[0])
        planted = self.PASS, recipe, self.fires(), self.TARGET, monkeypatch
        for after in modules_where_a_method_raises(*planted):
            np.testing.assert_allclose(_numbers(after), expected, tolerance, self.TOLERANCE)

    def test_recipes_list_it(self) -> None:
        for recipe in self.RECIPES:
            assert any(step.name == self.PASS.name for step in recipe.before)


def _numbers(mod: Any) -> Any:
    arrays = [random(*map(int, param.ty.shape)) for param in mod["main"].params]
    vm = networks.machine(mod, networks.unoptimized(HASWELL))
    return vm["main"](*map(tvm.runtime.tensor, arrays)).numpy()
