"""Arguments of tensor programs, as passed between processes and stored in the dataset."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from pydantic import JsonValue, TypeAdapter

Range = tuple[int, int]
# Values of integers that are not indices: masks and flags take 0 and 1.
FREE_RANGE: Final[Range] = (0, 2)
_ALL_BYTES: Final[Mapping[str, Range]] = {"int8": (-128, 128), "uint8": (0, 256)}


class Tensor(NamedTuple):
    """An argument, in the format of TVM's tuning logs."""

    kind: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arguments:
    """All arguments of a program in order, inputs and outputs."""

    args: tuple[Tensor, ...]
    outputs: tuple[int, ...] = ()  # indices
    # Value range (low, high exclusive) of integer arguments, by argument index as text.
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> "Arguments":
        """Return a copy with other tensors, for schedules that change weights' layouts."""
        return replace(self, args=tensors)

    def with_full_byte_range(self) -> "Arguments":
        """Return a copy in which byte arguments that are not indices take their full
        range: with only zeros and ones, most wrong sums would round to the correct byte."""
        free = {
            str(i): _ALL_BYTES[tensor.dtype]
            for i, tensor in enumerate(self.args)
            if tensor.dtype in _ALL_BYTES and self.ranges.get(str(i), FREE_RANGE) == FREE_RANGE
        }
        return replace(self, ranges={**self.ranges, **free})

    def describe_draws(self, ints: tuple[int, int], floats: tuple[float, float]) -> list[list[Any]]:
        """Return each argument's type, shape and range, for drawing random values."""
        draws: list[list[Any]] = []
        for index, (_, dtype, shape) in enumerate(self.args):
            default_range = ints if dtype.startswith(("int", "uint", "bool")) else floats
            draws.append([dtype, shape, *self.ranges.get(str(index), default_range)])
        return draws


_ARGUMENTS: Final = TypeAdapter(Arguments)


def pack_arguments(arguments: Arguments) -> dict[str, JsonValue]:
    """Return the arguments as a JSON object for a database column."""
    fields: dict[str, JsonValue] = _ARGUMENTS.dump_python(arguments, mode="json")
    return fields


def unpack_arguments(fields: object) -> Arguments:
    """Return the arguments stored by `pack_arguments`. Raises ValueError for others."""
    return _ARGUMENTS.validate_python(fields)
