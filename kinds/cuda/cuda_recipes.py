"""Graph recipes of networks on NVIDIA's GPUs."""

from typing import Final

from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import Target
from mallorn.kinds.cuda.compute_capability import capability
from mallorn.workers.tvm.network.recipe_kind import RecipeKind

#: By precision: TVM's type of the factors, and the recipe.
_ROUNDED: Final = {
    "fp16": ("float16", "fp16-gpu"),
    "bf16": ("bfloat16", "bf16-gpu"),
    "tf32": ("tfloat32", "tf32-gpu"),
}


class CudaRecipes(RecipeKind):
    def in_float32(self, recipe: str) -> str:
        return {"tuned": "tuned-gpu", "direct": "tuned-gpu", "plain": "plain-gpu"}.get(recipe, recipe)

    def rounded(self, recipe: str, precision: str, target: Target) -> str:
        dtype, rounded = _ROUNDED[precision]
        arch = target.attrs["arch"]
        if dtype not in capability(arch).tensor_core_types:
            message = f"the tensor cores of {arch} do not multiply {dtype}"
            raise InvalidRequest(message, hint="--precision fp16, or a GPU from sm_80 on")
        return rounded
