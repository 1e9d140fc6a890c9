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
    """One pass, with the calls and functions of the graph before and after it."""

    name: Annotated[str, Field(alias="pass", description="The pass, by its dotted name below `tvm`.")]
    ops_before: int = 0
    ops_after: int = 0
    functions_before: int = 0
    functions_after: int = 0
    skipped: Annotated[
        str, Field(description="Why TVM refused it, where it was passed over; else empty.")
    ] = ""
    error: Annotated[str, Field(description="What it raised on calls that it left; else empty.")] = ""


class RecipeStep(Value):
    """A pass of a recipe, as the exported script repeats it."""

    name: Annotated[str, Field(alias="pass", description="The pass, by its dotted name below `tvm`.")]
    args: list[JsonValue] = []
    optional: Annotated[bool, Field(description="Passed over where TVM refuses the model.")] = False
    left_out: Annotated[str, Field(description="Why it does not run on this model; empty where it runs.")] = (
        ""
    )


class StoredRecipe(Value):
    """The passes before and after schedules are applied: from the import on, a part of the job."""

    name: str = ""
    version: int = 0
    before: list[RecipeStep] = []
    after: list[RecipeStep] = []


class CopyLeft(Value):
    """A function that computes nothing, as a transpose, and the operator that asks for it."""

    function: str
    kind: Annotated[str, Field(description="transpose, concatenation, pad, slice or copy.")]
    asked_by: Annotated[str, Field(description="Its reader, or what has no other layout; by its kind.")]
    calls: int = 1


class GraphReport(Value):
    """What an import found out. Every key may be missing: earlier versions knew fewer."""

    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    input_ranges: Annotated[
        dict[str, list[int]], Field(description="Of integer inputs, which the model's look-ups bound.")
    ] = {}
    onnx_operators: Annotated[dict[str, int], Field(description="Nodes of the ONNX graph by operator.")] = {}
    operators_before: Annotated[
        dict[str, int], Field(description="Calls by operator before the passes.")
    ] = {}
    operators_after: Annotated[dict[str, int], Field(description="Calls by operator after them.")] = {}
    copies: Annotated[
        list[CopyLeft], Field(description="Functions that only move data, and are left after the passes.")
    ] = []
    steps: Annotated[list[GraphStep], Field(description="The passes, in their order.")] = []
    recipe: StoredRecipe = StoredRecipe()
    dynamic: Annotated[
        Dynamic | None, Field(description="Of a job for a range of shapes; shapes here are the largest.")
    ] = None
    tvm_version: str = ""
    code: Annotated[str, Field(description="Digest of the code that found it out.")] = ""
