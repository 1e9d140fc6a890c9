"""The contract of a kind of hardware for graph recipes."""

from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import Target


class RecipeKind:
    """Which graph recipes networks have on a kind of hardware; here on a CPU."""

    def in_float32(self, recipe: str) -> str:
        """Return the name of the variant of a recipe for this hardware."""
        return recipe

    def rounded(self, recipe: str, precision: str, target: Target) -> str:
        """Return the name of the variant whose products round their factors. Raises
        InvalidRequest if the target's processors do not multiply in this precision."""
        if precision != "bf16":
            message = f"the target's CPU has no products in {precision}"
            raise InvalidRequest(message, hint="--precision bf16 or --precision float32")
        return {"tuned": "bf16", "direct": "direct-bf16"}[recipe]
