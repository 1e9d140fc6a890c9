"""A pass has one name: its class's. Recipes that were stored under older names run_passes as they did."""

import gzip
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import tvm
from onnx import helper
from tvm import relax

from mallorn.core.values.graph_report import RecipeStep, StoredRecipe
from mallorn.graphc.core.pass_registry import ARGUMENTS, OLD_NAMES, OWN_PASSES, resolve_pass
from mallorn.graphc.core.pass_runner import run_passes
from mallorn.graphc.export.export_checks import (
    LARGEST_ERROR_ROUNDED,
    ManifestFile,
    Refused,
    check_error,
)
from mallorn.workers.tvm.network.graph_recipes import (
    BF16,
    BF16_GPU,
    FP16_GPU,
    TUNED,
    precision_of,
    recipe_of,
)
from tests.fixtures.onnx_network import saved
from tests.fixtures.trap import OLD_TABLES
from tests.unit.graphc.networks import HASWELL, NHWC, network, weights

OLD_BY_NEW = {name: old for old, name in OLD_NAMES.items()}


@pytest.mark.parametrize("name", OWN_PASSES)
def test_the_registry_names_a_pass_as_its_class_is_named(name: str) -> None:
    made = resolve_pass(name)
    assert made.name == name == re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", made.__name__).lower()


def test_every_old_name_leads_to_a_pass_of_its_own() -> None:
    assert OLD_BY_NEW.keys() <= OWN_PASSES.keys() | ARGUMENTS.keys()
    assert len(OLD_BY_NEW) == len(OLD_NAMES)
    assert all(resolve_pass(old) is resolve_pass(name) for old, name in OLD_NAMES.items())


def in_old_names(recipe: StoredRecipe) -> StoredRecipe:
    """A recipe as earlier versions stored it."""

    def renamed(step: RecipeStep) -> RecipeStep:
        args = [{**arg, "call": "mallorn.lanes"} if "vector_lanes" in str(arg) else arg for arg in step.args]
        return RecipeStep(name=OLD_BY_NEW.get(step.name, step.name), args=args, optional=step.optional)

    steps = {"before": [*map(renamed, recipe.before)], "after": [*map(renamed, recipe.after)]}
    return recipe.model_copy(update=steps)


def test_a_recipe_in_old_names_makes_the_same_program() -> None:
    narrow = network(lambda _, x: relax.op.nn.conv2d(x, weights(3, 3, 8, 12), **NHWC), (1, 8, 8, 8))
    stored = in_old_names(TUNED)
    forms = stored, recipe_of(stored), TUNED  # of an export, and of a job
    old, read, new = (
        run_passes(narrow, form.model_dump()["before"], tvm.target.Target(HASWELL)) for form in forms
    )
    assert [report.name for report in new[1] if report.fired]
    assert old[1] == read[1] == new[1]
    tvm.ir.assert_structural_equal(old[0], new[0])
    tvm.ir.assert_structural_equal(read[0], new[0])


def test_a_recipe_in_old_names_has_its_precision() -> None:
    assert [precision_of(in_old_names(recipe)) for recipe in (TUNED, BF16)] == ["float32", "bf16"]


def test_an_export_in_old_names_may_err_as_much_as_its_precision_does(tmp_path: Path) -> None:
    model = saved(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 3]}, {"y": [1, 3]})
    single, half = (
        {"recipe": {"before": in_old_names(recipe).model_dump()["before"]}} for recipe in (TUNED, BF16)
    )
    check_error(half, 1e-2, str(model), None)
    with pytest.raises(Refused, match="do not use this library"):
        check_error(single, 1e-2, str(model), None)


def test_recipes_of_0_1_0_name_passes_that_exist() -> None:
    with closing(sqlite3.connect(":memory:")) as tables:
        tables.executescript(gzip.decompress(OLD_TABLES.read_bytes()).decode())
        graphs = [json.loads(graph) for (graph,) in tables.execute("SELECT graph FROM jobs") if graph]
    recipes = [StoredRecipe.model_validate(graph["recipe"]) for graph in graphs if graph.get("recipe")]
    names = {step.name for recipe in map(recipe_of, recipes) for step in recipe.before + recipe.after}
    assert {"conv3x3_to_winograd", "relax.transform.FuseOps"} <= names
    assert all(map(resolve_pass, names))


@pytest.mark.parametrize(
    ("recipe", "error", "words"),
    [
        (FP16_GPU, 2e-2, "numbers over 65,504 become infinite: tune with --precision bf16 or float32"),
        (FP16_GPU, float("inf"), "numbers over 65,504 became infinite"),
        (BF16_GPU, 6e-2, "do not use this library$"),
    ],
)
def test_a_failed_check_in_float16_says_what_overflows(
    recipe: StoredRecipe, error: float, words: str, tmp_path: Path
) -> None:
    model = saved(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 3]}, {"y": [1, 3]})
    manifest: ManifestFile = {"recipe": {"before": recipe.model_dump()["before"]}}
    check_error(manifest, LARGEST_ERROR_ROUNDED[precision_of(recipe)] / 2, str(model), None)
    with pytest.raises(Refused, match=words):
        check_error(manifest, error, str(model), None)
