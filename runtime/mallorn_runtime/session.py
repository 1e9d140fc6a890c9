"""Call a library: checked inputs, no copies, any number of threads."""

import filecmp
import math
import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mallorn_runtime.errors import InputRefused, OptionRefused
from mallorn_runtime.library_file import TensorSpec, check_machine, format_shape, read_library_file
from mallorn_runtime.load_tvm import tvm_ffi
from mallorn_runtime.loaded_library import CPU, Main, load

ALIGNMENT: Final = 64  # bytes; TVM's vector code relies on it
MOST_SHAPES: Final = 256  # that a session of free dimensions remembers as checked
Array = npt.NDArray[Any]
Shapes = tuple[tuple[int, ...], ...]

_from_dlpack: Final = tvm_ffi.from_dlpack


def empty(shape: Iterable[int], dtype: npt.DTypeLike = "float32") -> Array:
    """Return an uninitialised array that a session takes without a copy: it is aligned to 64 bytes."""
    sizes, kind = tuple(shape), np.dtype(dtype)
    count = math.prod(sizes) * kind.itemsize
    memory = np.empty(count + ALIGNMENT, np.uint8)
    start = -_from_dlpack(memory).data_ptr() % ALIGNMENT
    return memory[start : start + count].view(kind).reshape(sizes)


class Session:
    """A model that `mallorn` compiled to a library.

    Any number of threads may call `run` at once. Sessions of one file share its weights and
    its threads. `threads` counts the calling thread, too; by default as many are used as the
    model was tuned for. `affinity` are the cores of all threads but the calling one.
    `share_weights_with` is a session of an equal file, such as a copy, whose weights are used.
    Raises LibraryRefused, before anything is loaded, if this machine cannot run the library;
    OptionRefused.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        affinity: Iterable[int] | None = None,
        share_weights_with: "Session | None" = None,
    ) -> None:
        file = read_library_file(path)
        check_machine(file)
        if share_weights_with is None:
            self._library = load(file)
        else:
            self._library = share_weights_with._library
            shared = self._library.file
            if shared.identity != file.identity and not filecmp.cmp(file.path, shared.path, shallow=False):
                raise OptionRefused(f"{file.path} and {shared.path} differ, so they cannot share weights")
        if threads is not None or affinity is not None:
            self._library.set_threads(threads, affinity)
        self.meta: Mapping[str, Any] = MappingProxyType(dict(file.meta))
        self.inputs: tuple[TensorSpec, ...] = file.inputs
        self.outputs: tuple[TensorSpec, ...] = file.outputs
        self.ranges = file.ranges
        self._path = file.path
        self._specs = [(spec.name, _numpy_type(spec), _fixed_shape(spec), spec) for spec in self.inputs]
        self._converters = [(spec.name, _to_array(spec)) for spec in self.outputs]
        self._is_free = any(shape is None for _, _, shape, _ in self._specs)
        self._checked_shapes: set[Shapes] = set()
        self._idle: list[Main] = []  # a call takes one out, or creates one
        self._shared_outputs: frozenset[int] | None = None  # by index; None: not known before a first call

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Return the outputs by name, for inputs by name.

        Takes arrays of numpy and everything with `__dlpack__` on this CPU, without a copy if
        contiguous and aligned to 64 bytes, as outputs of a session and `empty` are. Outputs
        of types that numpy lacks, such as bfloat16, are tensors with `__dlpack__`.
        Raises InputRefused.
        """
        if len(inputs) != len(self._specs):
            raise self._wrong_names(inputs)
        tensors = []
        for name, dtype, shape, spec in self._specs:
            try:
                value = inputs[name]
            except KeyError:
                raise self._wrong_names(inputs) from None
            if type(value) is np.ndarray and value.dtype == dtype and (value.shape == shape or shape is None):
                tensor = _import_array(value)
            else:
                tensor = self._import(spec, value)
            tensors.append(tensor)
        if self._is_free:
            self._check_free_sizes(tuple(tensor.shape for tensor in tensors))
        try:
            main = self._idle.pop()
        except IndexError:
            main = self._library.create_main()
        if self._shared_outputs is None:
            self._shared_outputs = _find_shared_outputs(main, tensors)
        result = main(*tensors)
        self._idle.append(main)
        results = (result,) if isinstance(result, tvm_ffi.Tensor) else result
        outputs = {
            name: convert(tensor) for (name, convert), tensor in zip(self._converters, results, strict=True)
        }
        for index in self._shared_outputs:
            name = self.outputs[index].name
            outputs[name] = np.array(outputs[name])
        return outputs

    def _import(self, spec: TensorSpec, value: Any) -> Any:
        """Return an input that the fast path did not take as a tensor of TVM. Raises InputRefused."""
        given = np.asarray(value) if isinstance(value, np.generic) else value
        try:
            if given.__dlpack_device__()[0] != CPU:
                raise InputRefused(
                    f"input {spec.name} of {self._path} is not in this CPU's memory: copy it there"
                )
            if isinstance(given, np.ndarray):
                tensor = _import_array(given)
            else:
                tensor = _from_dlpack(given)
                if tensor.data_ptr() % ALIGNMENT or not tensor.is_contiguous():
                    tensor = _copy(np.from_dlpack(given))
        except (AttributeError, TypeError):
            kind = type(value).__name__
            raise InputRefused(
                f"input {spec.name} of {self._path} is a {kind}; an array is wanted: {spec}"
            ) from None
        except (RuntimeError, BufferError) as error:
            raise InputRefused(f"input {spec.name} of {self._path} cannot be used: {error}") from None
        shape, fixed = tuple(tensor.shape), _fixed_shape(spec)
        is_right = shape == fixed if fixed is not None else _agrees(shape, spec)
        if str(tensor.dtype) != spec.dtype or not is_right:
            raise InputRefused(
                f"input {spec.name} of {self._path} is {tensor.dtype} {format_shape(shape)}; {spec} is wanted"
            )
        return tensor

    def _check_free_sizes(self, shapes: Shapes) -> None:
        """Raise InputRefused if sizes of free dimensions contradict each other or their ranges."""
        if shapes in self._checked_shapes:
            return
        sizes: dict[str, int] = {}
        sums: list[tuple[TensorSpec, str, int]] = []
        for spec, shape in zip(self.inputs, shapes, strict=True):
            if not _agrees(shape, spec):
                raise InputRefused(
                    f"input {spec.name} of {self._path} is {spec.dtype} {format_shape(shape)}; {spec} is wanted"
                )
            for dim, size in zip(spec.shape, shape, strict=True):
                if dim in self.ranges and sizes.setdefault(str(dim), size) != size:
                    raise InputRefused(
                        f"input {spec.name} of {self._path} has {dim} = {size}, and an input before it "
                        f"{dim} = {sizes[str(dim)]}"
                    )
                if isinstance(dim, str) and dim not in self.ranges:
                    sums.append((spec, dim, size))
        for name, (low, high) in self.ranges.items():
            if not low <= sizes.get(name, low) <= high:
                raise InputRefused(f"{name} is {sizes[name]}, and {self._path} takes {low} to {high}")
        for spec, dim, size in sums:
            terms = [int(term) if term.isdigit() else sizes.get(term) for term in dim.split(" + ")]
            if None not in terms and sum(term or 0 for term in terms) != size:
                raise InputRefused(
                    f"input {spec.name} of {self._path} has {dim} = {size}; the other inputs make it "
                    f"{sum(term or 0 for term in terms)}"
                )
        if len(self._checked_shapes) >= MOST_SHAPES:
            self._checked_shapes.clear()
        self._checked_shapes.add(shapes)

    def _wrong_names(self, inputs: Mapping[str, Any]) -> InputRefused:
        wanted = {spec.name: spec for spec in self.inputs}
        unknown, lacking = sorted(inputs.keys() - wanted.keys()), sorted(wanted.keys() - inputs.keys())
        words = [f"has no input {', '.join(unknown)}"] if unknown else []
        words += (
            [f"also needs input {', '.join(f'{name} ({wanted[name]})' for name in lacking)}"]
            if lacking
            else []
        )
        return InputRefused(
            f"{self._path} {' and '.join(words)}; its inputs are {', '.join(wanted) or 'none'}"
        )


def _numpy_type(spec: TensorSpec) -> "np.dtype[Any] | None":
    """Return numpy's type of a tensor; None if it has none."""
    try:
        return np.dtype(spec.dtype)
    except TypeError:
        return None


def _fixed_shape(spec: TensorSpec) -> tuple[int, ...] | None:
    """Return a shape without free dimensions; None if it has some."""
    sizes = tuple(size for size in spec.shape if isinstance(size, int))
    return sizes if len(sizes) == len(spec.shape) else None


def _agrees(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    """Return whether the rank and all sizes that are not free are as wanted."""
    return len(shape) == len(spec.shape) and all(
        dim in (size, str(dim)) if isinstance(dim, int) else True
        for dim, size in zip(spec.shape, shape, strict=True)
    )


def _to_array(spec: TensorSpec) -> Callable[[Any], Any]:
    return np.from_dlpack if _numpy_type(spec) is not None else lambda tensor: tensor


def _import_array(value: Array) -> Any:
    """Return an array as a tensor of TVM, in the same memory if possible."""
    if value.flags.c_contiguous:
        try:
            tensor = _from_dlpack(value)
        except BufferError:  # read-only
            return _copy(value)
        if not tensor.data_ptr() % ALIGNMENT:
            return tensor
    return _copy(value)


def _copy(value: Array) -> Any:
    array = empty(value.shape, value.dtype)
    array[...] = value
    return _from_dlpack(array)


def _find_shared_outputs(main: Main, tensors: list[Any]) -> frozenset[int]:
    """Return the indices of outputs that are no memory of their own: weights, inputs or other outputs.

    Only such an output has one address in two calls whose results are alive. It is copied
    then, so that a caller who writes to it changes nothing else.
    """
    first, second = (
        [result] if isinstance(result, tvm_ffi.Tensor) else list(result)
        for result in (main(*tensors), main(*tensors))
    )
    places = [tensor.data_ptr() for tensor in first]
    pairs = enumerate(zip(places, second, strict=True))
    return frozenset(
        index
        for index, (place, again) in pairs
        if again.numel() and (place == again.data_ptr() or place in places[:index])
    )
