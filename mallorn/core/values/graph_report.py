"""Report of an import: the model's graph before and after the passes."""

from typing import Annotated, Final

from pydantic import Field, JsonValue

from mallorn.core.values.base import Value
from mallorn.core.values.dynamic_shapes import Dynamic

MOST_REASONS: Final = 5  # named in a sentence


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


class OutsideNodes(Value):
    """Nodes of one operator that are not compiled, for the same reason."""

    operator: str
    reason: str
    count: int


class Region(Value):
    """The part of an ONNX graph that is compiled, between tensors of the graph; onnxruntime runs the rest."""

    inputs: Annotated[list[str], Field(description="Tensors of the graph that the library takes.")]
    outputs: Annotated[list[str], Field(description="Tensors of the graph that the library returns.")]
    nodes: Annotated[int, Field(description="Compiled nodes.")]
    outside: Annotated[list[OutsideNodes], Field(description="Nodes that cannot be compiled, and why.")]
    rest: Annotated[int, Field(description="Nodes that could be compiled, but lie beyond those.")] = 0

    @property
    def total(self) -> int:
        """Number of nodes of the graph."""
        return self.nodes + self.rest + sum(each.count for each in self.outside)

    @property
    def sentence(self) -> str:
        """Say which nodes are not compiled, and why."""
        first = self.outside[:MOST_REASONS]
        reasons = "; ".join(f"{each.count} {each.operator}: {each.reason}" for each in first)
        more = "; and others" if len(self.outside) > MOST_REASONS else ""
        return (
            f"{self.nodes} of {self.total} nodes are compiled, and onnxruntime runs the rest. "
            f"These cannot be compiled: {reasons}{more}"
        )


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
    region: Annotated[
        Region | None, Field(description="The compiled part of the graph; null: all of it.")
    ] = None
    tvm_version: str = ""
    code: Annotated[str, Field(description="Digest of the code that wrote this report.")] = ""
