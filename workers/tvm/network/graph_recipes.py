"""Recipes: lists of graph passes from a network to its tasks, and on to a tuned library.

Recipes are plain data, so that workers and manifests can name one without loading TVM. A
recipe decides which tasks exist: after a change of its passes, older schedules match no
task. Raise `version` with every change of its phases (`graphc/phases.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import resolve
from mallorn.core.targets import Target
from mallorn.core.values.graph_report import RecipeStep, StoredRecipe
from mallorn.graphc.core.pass_registry import OWN_PASSES, Step
from mallorn.graphc.export.export_checks import FLOAT32, precision_of_steps
from mallorn.graphc.phases import AFTER_SCHEDULES, BEFORE_SCHEDULES
from mallorn.workers.tvm.network.recipe_kind import RecipeKind


def _recipe(name: str, version: int) -> StoredRecipe:
    before, after = (
        [step for phase in phases for step in phase.steps]
        for phases in (BEFORE_SCHEDULES[name], AFTER_SCHEDULES.get(name, ()))
    )
    return StoredRecipe.model_validate({"name": name, "version": version, "before": before, "after": after})


PLAIN: Final = _recipe("plain", 1)
PLAIN_GPU: Final = _recipe("plain-gpu", 1)
TUNED: Final = _recipe("tuned", 13)
DIRECT: Final = _recipe("direct", 12)
BF16: Final = _recipe("bf16", 9)
DIRECT_BF16: Final = _recipe("direct-bf16", 8)
FP16_CPU: Final = _recipe("fp16", 1)
TUNED_GPU: Final = _recipe("tuned-gpu", 3)
FP16_GPU: Final = _recipe("fp16-gpu", 2)
BF16_GPU: Final = _recipe("bf16-gpu", 2)
TF32_GPU: Final = _recipe("tf32-gpu", 1)
FAST: Final = "relax.transform.FastMathTransform"
MOST_FAULTY: Final = 3  # faulty parts to search for; if there are more, all parts are left out
T = TypeVar("T")

_BY_NAME: Final = {
    recipe.name: recipe
    for recipe in (
        *(PLAIN, PLAIN_GPU, TUNED, DIRECT, BF16, DIRECT_BF16),
        *(FP16_CPU, TUNED_GPU, FP16_GPU, BF16_GPU, TF32_GPU),
    )
}


def recipe_for(name: str, target: Target, precision: str = FLOAT32) -> StoredRecipe:
    """Return the recipe of this name, or its variant for the target's hardware or rounded
    factors. Raises UnknownName if there is no such recipe, InvalidRequest if it has no such
    variant, or if the target's processors do not multiply in this precision."""
    recipe: StoredRecipe = resolve("recipe", name)
    kind = target.hardware.part(RecipeKind)
    if precision == FLOAT32:
        return _BY_NAME.get(kind.in_float32(recipe.name), recipe)
    if recipe.name not in (TUNED.name, DIRECT.name):
        hint = f"--recipe tuned --precision {precision}"
        raise InvalidRequest(f"the {recipe.name} recipe computes in float32", hint=hint)
    return _BY_NAME[kind.rounded(recipe.name, precision, target)]


def precision_of(recipe: StoredRecipe) -> str:
    """Return the precision in which a recipe's models compute, as named in job options."""
    return precision_of_steps(recipe.model_dump()["before"])


def recipe_steps(recipe: StoredRecipe) -> dict[str, list[Step]]:
    """Return a stored recipe's steps as graphc runs them, under the keys before and after.
    Raises InvalidRequest if the recipe has no name or version."""
    if not recipe.name or recipe.version < 1:
        raise InvalidRequest(f"not a graph recipe: {recipe.to_stored_json()}")
    return recipe.model_dump(include={"before", "after"})


def skipped_passes(recipe: StoredRecipe) -> dict[str, str]:
    """Return the passes of a recipe that are skipped for its model, with the reasons."""
    steps = *recipe.before, *recipe.after
    return {step.name: step.left_out for step in steps if step.left_out}


def with_skipped_passes(recipe: StoredRecipe, reasons: Mapping[str, str]) -> StoredRecipe:
    """Return the recipe with further passes left out, for the given reasons."""

    def mark(steps: Sequence[RecipeStep]) -> list[RecipeStep]:
        return [
            step.model_copy(update={"left_out": reasons[step.name]}) if step.name in reasons else step
            for step in steps
        ]

    return recipe.model_copy(update={"before": mark(recipe.before), "after": mark(recipe.after)})


def is_reduced_form_of(candidate: StoredRecipe, recipe: StoredRecipe) -> bool:
    """Return whether `candidate` is `recipe` with the same or more passes left out."""
    has_all = skipped_passes(recipe).keys() <= skipped_passes(candidate).keys()
    return has_all and with_skipped_passes(recipe, skipped_passes(candidate)) == candidate


def skippable_passes(recipe: StoredRecipe) -> list[str]:
    """Return the passes that may still be left out: ours, and TVM's optional ones."""
    names = (
        step.name
        for step in (*recipe.before, *recipe.after)
        if not step.left_out and (step.optional or step.name == FAST or step.name in OWN_PASSES)
    )
    return list(dict.fromkeys(names))


def faulty_parts(parts: Sequence[T], works_without: Callable[[Sequence[T]], bool]) -> Sequence[T] | None:
    """Find parts without which the others work; None if leaving out all does not help. A
    bisection calls `works_without` about log2(len(parts)) times per faulty part."""
    if not parts or not works_without(parts):
        return None
    faulty: list[T] = []
    suspects = list(parts)
    for _ in range(MOST_FAULTY):
        # Works without [*faulty, *suspects[:high]], fails without [*faulty, *suspects[:low]].
        low, high = 0, len(suspects)
        while high - low > 1:
            middle = (low + high) // 2
            if works_without([*faulty, *suspects[:middle]]):
                high = middle
            else:
                low = middle
        faulty.append(suspects[high - 1])
        suspects = suspects[: high - 1]
        if not suspects or works_without(faulty):
            return faulty
    return parts
