"""How far a tuned model's answers may be from the untuned one's."""

from pathlib import Path
from typing import Final

from mallorn.core.values.graph import StoredRecipe
from workers.tvm.recipes import precision_of
from workers.tvm.templates.checks import LARGEST_ERROR_BF16, error_of_steps

# What the graph recipe's faster forms of erf and exp may cost is far below; a wrong schedule is far above.
# An export's own script compares with onnxruntime alone, which sums up in another order.
LARGEST_ERROR: Final = {"float32": 1e-4, "bf16": LARGEST_ERROR_BF16}


def largest_error(recipe: StoredRecipe, model: Path) -> float:
    """The relative error that a model may have after a recipe."""
    return max(LARGEST_ERROR[precision_of(recipe)], error_of_steps(model))
