"""Errors that tests plant in the methods of graph passes."""

from collections.abc import Iterator
from inspect import isfunction
from typing import Any

import pytest
import tvm

from mallorn.core.values.graph_report import StoredRecipe
from mallorn.graphc.core.graph_pass import ReportingPass
from mallorn.graphc.core.pass_registry import FOLLOWED_BY
from mallorn.workers.tvm.network.graph_recipes import skipped_passes
from mallorn.workers.tvm.network.run_recipe_passes import run_passes_skipping_failures

PLANTED = "planted by a test"


def modules_where_a_method_raises(
    raising: type[ReportingPass], recipe: StoredRecipe, mod: Any, target: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Yield the module after the recipe with an error planted in each method of a pass.

    Asserts that the recipe or its report names the pass with the error.
    """

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(PLANTED)

    methods = {name for name, value in vars(raising).items() if isfunction(value)}
    for method in sorted({*methods, "apply"}):
        with monkeypatch.context() as patch:
            patch.setattr(raising, method, fail)
            used, after, steps = run_passes_skipping_failures(mod, recipe, tvm.target.Target(target))
        said = {step.name: step.error for step in steps if step.error} | skipped_passes(used)
        assert PLANTED in said[step_of(raising)], f"{method}: {said}"
        yield after


def step_of(each: type[ReportingPass]) -> str:
    """The name of the step in which recipes run a pass: its own, or that of the pass it follows."""
    return {follower: name for name, follower in FOLLOWED_BY.items()}.get(each.name, each.name)
