"""What a tensor program is called with, as it crosses the process border and as the dataset keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from pydantic import JsonValue, TypeAdapter

Range = tuple[int, int]
# Integers nothing is looked up with: masks and flags take 0 and 1.
FREE_RANGE: Final[Range] = (0, 2)
_ALL_BYTES: Final[Mapping[str, Range]] = {"int8": (-128, 128), "uint8": (0, 256)}


class Tensor(NamedTuple):
    """One argument, in the form of TVM's own logs."""

    kind: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arguments:
    """All arguments of a program in order; inputs and outputs."""

    args: tuple[Tensor, ...]
    outputs: tuple[int, ...] = ()  # indices
    # Of integer arguments by their index: the least, and the first that is too large.
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def of(self, tensors: tuple[Tensor, ...]) -> "Arguments":
        """The same roles in other shapes: a schedule may want its weights in another layout."""
        return replace(self, args=tensors)

    def in_checks(self) -> "Arguments":
        """The same, in which bytes that look nothing up take all values.

        Of zeros and ones most wrong sums of bytes round to the same byte.
        """
        free = {
            str(at): _ALL_BYTES[tensor.dtype]
            for at, tensor in enumerate(self.args)
            if tensor.dtype in _ALL_BYTES and self.ranges.get(str(at), FREE_RANGE) == FREE_RANGE
        }
        return replace(self, ranges={**self.ranges, **free})


_ARGUMENTS: Final = TypeAdapter(Arguments)


def pack_arguments(arguments: Arguments) -> dict[str, JsonValue]:
    """Arguments as plain values, for a column."""
    packed: dict[str, JsonValue] = _ARGUMENTS.dump_python(arguments, mode="json")
    return packed


def unpack_arguments(packed: object) -> Arguments:
    """What pack_arguments packed; raises ValueError for anything else."""
    return _ARGUMENTS.validate_python(packed)
