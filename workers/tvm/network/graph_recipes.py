"""Recipes: lists of graph passes from a network to its tasks, and on to a tuned library.

Recipes are plain data, so that workers and manifests can name one without loading TVM. A
recipe decides which tasks exist: after a change of its passes, older schedules match no
task. Raise `version` with every change of its phases (`graphc/phases.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from mallorn.core.compute_capability import capability
from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import resolve
from mallorn.core.targets import CUDA, Target
from mallorn.core.values.graph_report import RecipeStep, StoredRecipe
from mallorn.graphc.core.pass_registry import OWN_PASSES, Step
from mallorn.graphc.export.export_checks import FLOAT32, FP16, TF32, precision_of_steps
from mallorn.graphc.phases import AFTER_SCHEDULES, BEFORE_SCHEDULES


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
FP16_CPU: Final = _recipe(FP16, 1)
TUNED_GPU: Final = _recipe("tuned-gpu", 3)
FP16_GPU: Final = _recipe("fp16-gpu", 2)
BF16_GPU: Final = _recipe("bf16-gpu", 2)
TF32_GPU: Final = _recipe("tf32-gpu", 1)
FAST: Final = "relax.transform.FastMathTransform"
MOST_FAULTY: Final = 3  # faulty parts to search for; if there are more, all parts are left out
T = TypeVar("T")

_IN_BF16: Final = {TUNED.name: BF16, DIRECT.name: DIRECT_BF16}
_ON_GPU: Final = {TUNED.name: TUNED_GPU, DIRECT.name: TUNED_GPU, PLAIN.name: PLAIN_GPU}
_ON_TENSOR_CORES: Final = {
    FP16: ("float16", FP16_GPU),
    BF16.name: ("bfloat16", BF16_GPU),
    TF32: ("tfloat32", TF32_GPU),
}


def recipe_for(name: str, target: Target, precision: str = FLOAT32) -> StoredRecipe:
    """Return the recipe of this name, or its variant for GPUs or rounded factors. Raises
    UnknownName if there is no such recipe, InvalidRequest if it has no such variant, or if
    the target's processors do not multiply in this precision."""
    recipe: StoredRecipe = resolve("recipe", name)
    if precision == FLOAT32:
        return recipe if target.is_cpu else _ON_GPU.get(recipe.name, recipe)
    if recipe.name not in _IN_BF16:
        hint = f"--recipe tuned --precision {precision}"
        raise InvalidRequest(f"the {recipe.name} recipe computes in float32", hint=hint)
    if target.is_cpu:
        if precision == BF16.name:
            return _IN_BF16[recipe.name]
        if precision == FP16 and target.toolchain == "aarch64":
            return FP16_CPU
        suitable = "GPUs and aarch64" if precision == FP16 else "GPUs"
        hint = "--precision bf16 or --precision float32"
        raise InvalidRequest(f"{precision} is for {suitable}", hint=hint)
    dtype, on_gpu = _ON_TENSOR_CORES[precision]
    if target.kind != CUDA:
        message = f"{precision} is for CUDA GPUs, not for {target.kind}"
        raise InvalidRequest(message, hint="--precision float32")
    arch = target.attrs["arch"]
    if dtype not in capability(arch).tensor_core_types:
        message = f"the tensor cores of {arch} do not multiply {dtype}"
        raise InvalidRequest(message, hint=f"--precision {FP16}, or a GPU from sm_80 on")
    return on_gpu


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
