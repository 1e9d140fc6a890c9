"""Shapes of a job with free dimensions: the sizes tuned, and rules for the sizes between."""

from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value


class Rule(Value):
    """What computes inputs whose dimensions are at most so large."""

    upto: dict[str, int]
    point: Annotated[int, Field(description="Its place among the points.")]
    first: Annotated[
        str,
        Field(description="The dimension of which the point takes the first part; empty: it takes all."),
    ] = ""


class Dynamic(Value):
    """The free dimensions of a model, and the points: their sizes that are tuned, the largest last."""

    ranges: Annotated[dict[str, list[int]], Field(description="The least and the largest of each dimension.")]
    inputs: Annotated[
        dict[str, list[int | str]],
        Field(description="What each input takes: numbers, names of dimensions, and sums of them."),
    ]
    points: Annotated[
        list[dict[str, int]],
        Field(description="Without dimensions that may be nothing: these are left open."),
    ]
    padded: Annotated[
        list[str], Field(description="Dimensions that may be filled up with zeros: results stay the same.")
    ] = []
    divided: Annotated[
        list[str], Field(description="Dimensions whose parts may be computed one after the other.")
    ] = []
    calls: Annotated[
        list[dict[str, int]], Field(description="Of each point, how often it calls which task.")
    ] = []
    rules: Annotated[list[Rule], Field(description="The first that covers the sizes is followed.")] = []

    @property
    def grows(self) -> list[str]:
        """Dimensions that points leave open: those that may be 0, such as a cache's length."""
        return [name for name, (low, _) in self.ranges.items() if low == 0]

    @property
    def largest(self) -> dict[str, int]:
        """The largest size of every dimension."""
        return self.points[-1] | {name: self.ranges[name][1] for name in self.grows}

    def shapes(self, sizes: dict[str, int]) -> dict[str, list[int]]:
        """Return the shapes of the inputs that have free dimensions, at these sizes."""
        return {
            name: [_size(dim, sizes) if isinstance(dim, str) else dim for dim in dims]
            for name, dims in self.inputs.items()
        }


def _size(dim: str, sizes: dict[str, int]) -> int:
    return sum(int(name) if name.isdigit() else sizes[name] for name in dim.split(" + "))
