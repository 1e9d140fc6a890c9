"""Graph recipes of networks on Arm's 64-bit processors."""

from mallorn.core.targets import Target
from mallorn.workers.tvm.network.recipe_kind import RecipeKind


class Aarch64Recipes(RecipeKind):
    def rounded(self, recipe: str, precision: str, target: Target) -> str:
        return "fp16" if precision == "fp16" else super().rounded(recipe, precision, target)
