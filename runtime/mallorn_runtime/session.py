"""Call a library: checked inputs, no copies, any number of threads."""

import filecmp
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from mallorn_runtime import tensors
from mallorn_runtime.library_file import (
    InputRefused,
    OptionRefused,
    TensorInfo,
    check_machine,
    read_library_file,
)
from mallorn_runtime.loaded_library import Main, load, tvm_ffi

MOST_SHAPES: Final = 256  # that a session of free dimensions remembers as checked

# An item of an array of TVM; the array's own iterator takes four times as long.
_get_item: Final = tvm_ffi.get_global_func("ffi.ArrayGetItem")
_get_item.release_gil = False


class Session:
    """A model that `mallorn` compiled to a library.

    Any number of threads may call `run` at once. Sessions of one file share its weights and
    its threads. `threads` counts the calling thread, too; by default as many are used as
    the model was tuned for. `affinity` are the cores of all threads but the calling one.
    `share_weights_with` is a session of an equal file, such as a copy, whose weights are
    used. Raises LibraryRefused, before anything is loaded, if this machine cannot run the
    library; OptionRefused.
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
            source = self._library.file.path
            if not filecmp.cmp(file.path, source, shallow=False):
                raise OptionRefused(f"{file.path} and {source} differ, and share no weights")
        if threads is not None or affinity is not None:
            self._library.set_threads(threads, affinity)
        self.meta: Mapping[str, object] = MappingProxyType(dict(file.meta))
        self.inputs: tuple[TensorInfo, ...] = file.inputs
        self.outputs: tuple[TensorInfo, ...] = file.outputs
        self.ranges = file.ranges
        self._path = file.path
        self._rows = [(info.name, numpy_type(info), info.fixed_shape, info) for info in self.inputs]
        self._converters = [
            (info.name, np.from_dlpack if numpy_type(info) else lambda tensor: tensor)
            for info in self.outputs
        ]
        self._checked_shapes: set[tuple[tensors.Shape, ...]] = set()
        self._idle: list[Main] = []  # a call removes one, or creates one
        self._shared_outputs: frozenset[str] | None = None  # None: before a first call

    def run(self, inputs: Mapping[str, object]) -> dict[str, tensors.Array]:
        """Return the outputs by name, for inputs by name.

        Takes arrays of numpy and everything with ``__dlpack__`` on this CPU, without a copy
        if contiguous and aligned to 64 bytes, as outputs of a session and `empty` are.
        Outputs of types that numpy lacks, such as bfloat16, are tensors with
        ``__dlpack__``. Raises InputRefused.
        """
        if len(inputs) != len(self._rows):
            raise self._wrong_names(inputs)
        arguments = []
        for name, dtype, shape, info in self._rows:
            if name not in inputs:
                raise self._wrong_names(inputs)
            value: Any = inputs[name]
            is_known = isinstance(value, np.ndarray) and value.dtype == dtype
            if is_known and (shape is None or value.shape == shape):
                arguments.append(tensors.import_array(value))
            else:
                arguments.append(tensors.import_input(info, value, self._path))
        if self.ranges:
            shapes = tuple(tensor.shape for tensor in arguments)
            if shapes not in self._checked_shapes:
                tensors.check_free_sizes(self.inputs, shapes, self.ranges, self._path)
                if len(self._checked_shapes) >= MOST_SHAPES:
                    self._checked_shapes.clear()
                self._checked_shapes.add(shapes)
        try:
            main = self._idle.pop()
        except IndexError:
            main = self._library.create_main()
        result = main(*arguments)
        if self._shared_outputs is None:
            self._shared_outputs = self.find_shared_outputs(result, main(*arguments))
        self._idle.append(main)
        if isinstance(result, tvm_ffi.Tensor):
            ((name, convert),) = self._converters
            outputs = {name: convert(result)}
        else:
            outputs = {
                name: convert(_get_item(result, index))
                for index, (name, convert) in enumerate(self._converters)
            }
        for name in self._shared_outputs:
            outputs[name] = np.array(outputs[name])
        return outputs

    def find_shared_outputs(self, *results: Any) -> frozenset[str]:
        """Return the outputs that have no memory of their own: weights, inputs, other outputs.

        `results` are those of two calls with the same inputs. Such an output has the same
        address in both. It is copied, so that a caller who writes to it changes nothing else.
        """
        first, second = (
            [result] if isinstance(result, tvm_ffi.Tensor) else list(result) for result in results
        )
        places = [tensor.data_ptr() for tensor in first]
        return frozenset(
            info.name
            for index, (info, tensor) in enumerate(zip(self.outputs, second, strict=True))
            if tensor.numel()
            and numpy_type(info)
            and (places[index] == tensor.data_ptr() or places[index] in places[:index])
        )

    def _wrong_names(self, inputs: Mapping[str, object]) -> InputRefused:
        infos = {info.name: info for info in self.inputs}
        unknown = ", ".join(sorted(inputs.keys() - infos.keys()))
        lacking = ", ".join(f"{key} ({infos[key]})" for key in sorted(infos.keys() - inputs.keys()))
        words = [f"has no input {unknown}"] if unknown else []
        words += [f"also needs input {lacking}"] if lacking else []
        names = ", ".join(infos) or "none"
        return InputRefused(f"{self._path} {' and '.join(words)}; its inputs are {names}")


def numpy_type(info: TensorInfo) -> "np.dtype[Any] | None":
    """Return numpy's type of a tensor, or None if it has none."""
    try:
        return np.dtype(info.dtype)
    except TypeError:
        return None
