"""The loop nest of one block of a program: its loops and its buffer accesses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

FLOAT_BYTES = 4

# Index expression of one dimension of a buffer: pairs of axis and coefficient.
Index = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Axis:
    extent: int
    reduced: bool = False


@dataclass(frozen=True, slots=True)
class Access:
    """A buffer that a block reads or writes."""

    shape: tuple[int, ...]
    indices: tuple[Index, ...]  # one per dimension
    element_bytes: float = FLOAT_BYTES
    relaid: bool = False  # whether its layout follows the tiles (a weight packed ahead of time)
    made: bool = False  # whether another block of the program writes it

    @property
    def axes(self) -> frozenset[int]:
        return frozenset(axis for index in self.indices for axis, _ in index)

    def stride(self, axis: int) -> int:
        """Return the bytes between neighbours along an axis; 0 if unused or `relaid`."""
        places = [dimension for dimension, index in enumerate(self.indices) if axis in dict(index)]
        if self.relaid or not places:
            return 0
        step = dict(self.indices[places[-1]])[axis]
        return int(step * prod(self.shape[places[-1] + 1 :]) * self.element_bytes)


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of one block: spatial axes, the last of which is vectorised, then reductions."""

    axes: tuple[Axis, ...]
    reads: tuple[Access, ...]
    write: Access

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(axis.extent for axis in self.axes)

    @property
    def accesses(self) -> tuple[Access, ...]:
        return (*self.reads, self.write)


def matrix_product_nest(spatial: tuple[int, ...], reductions: tuple[int, ...]) -> Nest:
    """Return the nest assumed for an unknown block: a matrix product of its axes."""
    axes = (*(Axis(extent) for extent in spatial), *(Axis(extent, reduced=True) for extent in reductions))
    last, sums = len(spatial) - 1, tuple(range(len(spatial), len(axes)))
    across = tuple(range(last))
    reads = (_make_access(axes, (*across, *sums)), _make_access(axes, (*sums, last)))
    return Nest(axes, reads, _make_access(axes, (*across, last)))


def fold_nest(nest: Nest, extents: tuple[int, ...]) -> Nest | None:
    """Return the nest with several iterations of a loop as one, so that its extents become
    `extents`; None if the number of axes differs or an extent does not divide."""
    if len(extents) != len(nest.axes) or any(
        full % left for full, left in zip(nest.extents, extents, strict=True)
    ):
        return None
    at_once = {
        number: axis.extent // left
        for number, (axis, left) in enumerate(zip(nest.axes, extents, strict=True))
    }
    at_once = {axis: steps for axis, steps in at_once.items() if steps > 1}
    if not at_once:
        return nest
    axes = tuple(replace(axis, extent=left) for axis, left in zip(nest.axes, extents, strict=True))
    return Nest(axes, tuple(_folded(read, at_once) for read in nest.reads), _folded(nest.write, at_once))


def _folded(access: Access, at_once: Mapping[int, int]) -> Access:
    steps = [prod(at_once.get(axis, 1) for axis, _ in index) for index in access.indices]
    indices = [
        tuple((axis, max(1, factor // step)) for axis, factor in index)
        for index, step in zip(access.indices, steps, strict=True)
    ]
    shape = [max(1, length // step) for length, step in zip(access.shape, steps, strict=True)]
    return replace(
        access, shape=tuple(shape), indices=tuple(indices), element_bytes=access.element_bytes * prod(steps)
    )


def _make_access(axes: tuple[Axis, ...], order: tuple[int, ...]) -> Access:
    return Access(tuple(axes[index].extent for index in order), tuple(((index, 1),) for index in order))


def is_read_across_rows(producer: Nest, nests: Sequence[Nest]) -> bool:
    """Return whether an element-wise block reads the producer's result across its rows."""
    return any(
        access.made
        and access.shape == producer.write.shape
        and access.stride(len(nest.axes) - 1) > access.element_bytes
        for nest in nests
        for access in nest.reads
        if not any(axis.reduced for axis in nest.axes)
    )
