"""Shapes of a model with free dimensions: the tuned sizes, and rules for all other sizes."""

from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value


class Rule(Value):
    """The point that computes inputs with dimensions up to these sizes."""

    upto: dict[str, int]
    point: Annotated[int, Field(description="Its index in `points`.")]
    first: Annotated[
        str,
        Field(description="Dimension of which the point computes only the first part; empty: none."),
    ] = ""


class Dynamic(Value):
    """The free dimensions of a model, and the points: sizes that are tuned, the largest last."""

    ranges: Annotated[dict[str, list[int]], Field(description="Smallest and largest size of each dimension.")]
    inputs: Annotated[
        dict[str, list[int | str]],
        Field(description="Shape of each input: numbers, names of dimensions, and sums of these."),
    ]
    points: Annotated[
        list[dict[str, int]],
        Field(description="Tuned sizes, without the dimensions that may be 0: these stay free."),
    ]
    padded: Annotated[
        list[str], Field(description="Dimensions that may be padded with zeros without changing the results.")
    ] = []
    divided: Annotated[
        list[str], Field(description="Dimensions that may be split into parts, computed one by one.")
    ] = []
    calls: Annotated[
        list[dict[str, int]], Field(description="For each point: number of calls of each task.")
    ] = []
    rules: Annotated[list[Rule], Field(description="The first rule that covers the sizes applies.")] = []

    @property
    def growing_dimensions(self) -> list[str]:
        """Dimensions without tuned sizes: those that may be 0, such as a cache's length."""
        return [name for name, (low, _) in self.ranges.items() if low == 0]

    @property
    def largest(self) -> dict[str, int]:
        """The largest size of every dimension."""
        return self.points[-1] | {name: self.ranges[name][1] for name in self.growing_dimensions}

    def shapes(self, sizes: dict[str, int]) -> dict[str, list[int]]:
        """Return the shapes of the inputs that have free dimensions, at these sizes."""

        def size(dim: str) -> int:
            return sum(int(name) if name.isdigit() else sizes[name] for name in dim.split(" + "))

        return {
            name: [size(dim) if isinstance(dim, str) else dim for dim in dims]
            for name, dims in self.inputs.items()
        }
