"""Report of an import: the model's graph before and after the passes."""

from typing import Annotated

from pydantic import Field, JsonValue

from mallorn.core.values.base import Value
from mallorn.core.values.dynamic_shapes import Dynamic


class TensorSpec(Value):
    """An input or output of a model."""

    name: str
    dtype: str
    shape: list[int]


class GraphStep(Value):
    """One pass, with the numbers of operator calls and functions before and after it."""

    name: Annotated[str, Field(alias="pass", description="Name of a pass of Mallorn, or dotted below `tvm`.")]
    ops_before: int = 0
    ops_after: int = 0
    functions_before: int = 0
    functions_after: int = 0
    skip_reason: Annotated[
        str, Field(description="Why TVM refused the pass, if it was skipped; else empty.")
    ] = ""
    error: Annotated[str, Field(description="Error on calls that it left unchanged; else empty.")] = ""


class RecipeStep(Value):
    """A pass of a recipe, as the exported script applies it."""

    name: Annotated[str, Field(alias="pass", description="Name of a pass of Mallorn, or dotted below `tvm`.")]
    args: list[JsonValue] = []
    optional: Annotated[bool, Field(description="Skipped if TVM refuses the model.")] = False
    left_out: Annotated[str, Field(description="Why it does not run on this model; empty if it does.")] = ""


class StoredRecipe(Value):
    """The passes before and after schedules are applied; stored with the job at its import."""

    name: str = ""
    version: int = 0
    before: list[RecipeStep] = []
    after: list[RecipeStep] = []


class RemainingCopy(Value):
    """A function that only moves data, such as a transpose, and the operator that requires it."""

    function: str
    kind: Annotated[str, Field(description="transpose, concatenation, pad, slice or copy.")]
    required_by: Annotated[
        str, Field(description="Kind of its reader, or of an operator with a fixed layout.")
    ]
    calls: int = 1


class GraphReport(Value):
    """The result of an import. Every key may be missing: earlier versions had fewer."""

    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    input_ranges: Annotated[
        dict[str, list[int]], Field(description="Of integer inputs; they keep the model's lookups in bounds.")
    ] = {}
    onnx_operators: Annotated[dict[str, int], Field(description="Nodes of the ONNX graph by operator.")] = {}
    operators_before: Annotated[
        dict[str, int], Field(description="Calls by operator before the passes.")
    ] = {}
    operators_after: Annotated[dict[str, int], Field(description="Calls by operator after the passes.")] = {}
    copies: Annotated[
        list[RemainingCopy], Field(description="Functions that only move data and remain after the passes.")
    ] = []
    steps: Annotated[list[GraphStep], Field(description="The passes, in the order in which they ran.")] = []
    recipe: StoredRecipe = StoredRecipe()
    dynamic: Annotated[
        Dynamic | None, Field(description="For a range of shapes; shapes in this report are the largest.")
    ] = None
    tvm_version: str = ""
    code: Annotated[str, Field(description="Digest of the code that wrote this report.")] = ""
