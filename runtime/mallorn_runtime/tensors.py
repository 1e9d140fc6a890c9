"""Arrays as tensors of TVM: in the same memory where possible, and checked."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mallorn_runtime.library_file import InputRefused, TensorInfo, format_shape
from mallorn_runtime.loaded_library import CPU, tvm_ffi

ALIGNMENT: Final = 64  # bytes; TVM's vector code relies on it
Array = npt.NDArray[Any]
Shape = tuple[int, ...]

from_dlpack: Final = tvm_ffi.from_dlpack
_allocate: Final = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")


def empty(shape: Iterable[int], dtype: npt.DTypeLike = "float32") -> Array:
    """Return an uninitialised array that a session takes without a copy: it is aligned."""
    sizes, kind = tuple(shape), np.dtype(dtype)
    count = math.prod(sizes) * kind.itemsize
    memory = np.empty(count + ALIGNMENT, np.uint8)
    start = -from_dlpack(memory).data_ptr() % ALIGNMENT
    return memory[start : start + count].view(kind).reshape(sizes)


def copy_array(value: Array) -> Any:
    array = empty(value.shape, value.dtype)
    array[...] = value
    return from_dlpack(array)


def allocate_empty(shape: Shape, dtype: str) -> Any:
    """Return a tensor without elements: TVM refuses the strides that numpy gives to these."""
    cpu = tvm_ffi.device("cpu", 0)
    return _allocate(tvm_ffi.Shape(shape), tvm_ffi.dtype(dtype), cpu, None)


def import_array(value: Array) -> Any:
    """Return an array as a tensor, copied if it is not contiguous, aligned and writable."""
    if not value.size:
        return allocate_empty(value.shape, str(value.dtype))
    if value.flags.c_contiguous:
        try:
            tensor = from_dlpack(value)
        except BufferError:  # read-only
            return copy_array(value)
        if not tensor.data_ptr() % ALIGNMENT:
            return tensor
    return copy_array(value)


def import_input(info: TensorInfo, value: Any, path: Path) -> Any:
    """Return any input of the library at `path` as a tensor. Raises InputRefused."""
    subject = f"input {info.name} of {path}"
    try:
        if isinstance(value, np.ndarray | np.generic):
            tensor = import_array(np.asarray(value))
        elif value.__dlpack_device__()[0] != CPU:
            raise InputRefused(f"{subject} is not in this CPU's memory")
        else:
            tensor = from_dlpack(value)
            if not tensor.numel():
                tensor = allocate_empty(tensor.shape, str(tensor.dtype))
            elif tensor.data_ptr() % ALIGNMENT or not tensor.is_contiguous():
                tensor = copy_array(np.from_dlpack(value))
    except (AttributeError, TypeError):
        kind = type(value).__name__
        raise InputRefused(f"{subject} is a {kind}; an array is wanted: {info}") from None
    except (RuntimeError, BufferError) as error:
        raise InputRefused(f"{subject} cannot be used: {error}") from None
    if str(tensor.dtype) != info.dtype or not info.has_shape(tensor.shape):
        shape = format_shape(tensor.shape)
        raise InputRefused(f"{subject} is {tensor.dtype} {shape}; {info} is wanted")
    return tensor


def check_free_sizes(
    infos: Sequence[TensorInfo], shapes: Sequence[Shape], ranges: Mapping[str, tuple[int, int]], path: Path
) -> None:
    """Raise InputRefused if free sizes contradict each other or their ranges."""
    sizes: dict[str, int] = {}
    rows = list(zip(infos, shapes, strict=True))
    for info, shape in rows:
        if not info.has_shape(shape):
            words = f"{info.dtype} {format_shape(shape)}; {info} is wanted"
            raise InputRefused(f"input {info.name} of {path} is {words}")
        for dim, size in zip(info.shape, shape, strict=True):
            sizes.setdefault(str(dim), size)
    for info, shape in rows:
        for dim, size in zip(info.shape, shape, strict=True):
            terms = [sizes.get(term) for term in str(dim).split(" + ")]
            total = None if None in terms else sum(term or 0 for term in terms)
            if isinstance(dim, str) and total not in (None, size):
                words = f"has {dim} = {size}; other inputs make it {total}"
                raise InputRefused(f"input {info.name} of {path} {words}")
    for name, (low, high) in ranges.items():
        if not low <= sizes.get(name, low) <= high:
            raise InputRefused(f"{name} is {sizes[name]}, and {path} takes {low} to {high}")
