"""Inputs, right results and rivals of a task, in torch where it is installed, otherwise in numpy."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod
from typing import Any, Final, Protocol

from benchmarks.gpu.device import CUDA
from benchmarks.gpu.tasks import BATCH, CONVOLUTION, DEPTHWISE, NORM, PRODUCT, Task, shapes

SEED: Final = 1
_EPSILON: Final = 1e-5
_ALIGNMENT: Final = 64
_FLUSH_BYTES: Final = 256 << 20  # several times the L2 cache of any GPU
Call = Callable[[], object]


class Arithmetic(Protocol):
    """What is needed to check and time kernels of a task."""

    def inputs(self, task: Task) -> list[Any]:
        """Return inputs that are the same in every process."""

    def expected(self, task: Task, inputs: list[Any]) -> Any:
        """Return the right result, summed up in float32 at least."""

    def result(self, task: Task) -> Any:
        """Return memory for a result, filled with NaN."""

    def error(self, result: Any, expected: Any) -> float:
        """Return the relative error in the Frobenius norm."""

    def tvm(self, array: Any) -> Any:
        """Return an array as TVM's tensor in the same memory."""

    def rival(self, task: Task, inputs: list[Any]) -> tuple[str, Call] | None:
        """Return the name and the call of the library that computes the task; None if there is none."""

    def tensor_float(self, allowed: bool) -> AbstractContextManager[None]:
        """Let the library round the factors of float32 products to TensorFloat-32 meanwhile."""

    def times_us(self, call: Call, number: int, cold: bool) -> float:
        """Return the mean time of `number` calls, each with a cold L2 cache if `cold`."""


def arithmetic_of(kind: str) -> Arithmetic:
    """Return torch's arithmetic, or numpy's where torch is not installed and the device is a processor."""
    if importlib.util.find_spec("torch") is None and kind != CUDA:
        return NumpyArithmetic()
    return TorchArithmetic(kind)


class TorchArithmetic:
    """Arithmetic on a GPU, or on a processor, with torch."""

    def __init__(self, kind: str) -> None:
        import torch

        self._torch: Any = torch
        self._kind = kind
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        self._flush: Any = None

    def inputs(self, task: Task) -> list[Any]:
        generator = self._torch.Generator(self._kind).manual_seed(SEED)
        return [
            self._torch.randn(shape, generator=generator, device=self._kind).to(self._type(task.dtype))
            for shape in shapes(task)[:-1]
        ]

    def expected(self, task: Task, inputs: list[Any]) -> Any:
        return self._compute(task, [each.float() for each in inputs])().double()

    def result(self, task: Task) -> Any:
        shape = shapes(task)[-1]
        return self._torch.full(shape, float("nan"), dtype=self._type(task.sums), device=self._kind)

    def error(self, result: Any, expected: Any) -> float:
        return float((result.double() - expected).norm() / expected.norm())

    def tvm(self, array: Any) -> Any:
        import tvm

        return tvm.runtime.from_dlpack(array)

    def rival(self, task: Task, inputs: list[Any]) -> tuple[str, Call] | None:
        libraries = {PRODUCT: "cuBLAS", CONVOLUTION: "cuDNN", DEPTHWISE: "cuDNN", BATCH: "torch SDPA"}
        named = libraries.get(task.kind, f"torch {task.kind}") if self._kind == CUDA else "torch"
        return named, self._compute(task, inputs)

    @contextmanager
    def tensor_float(self, allowed: bool) -> Iterator[None]:
        self._torch.backends.cuda.matmul.allow_tf32 = allowed
        try:
            yield
        finally:
            self._torch.backends.cuda.matmul.allow_tf32 = False

    def times_us(self, call: Call, number: int, cold: bool) -> float:
        if self._kind != CUDA:
            return _host_times_us(call, number)
        torch = self._torch
        if cold and self._flush is None:
            self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=self._kind)
        marks = []
        for _ in range(number if cold else 1):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if cold:
                self._flush.zero_()
            begin.record()
            for _ in range(1 if cold else number):
                call()
            end.record()
            marks.append((begin, end))
        torch.cuda.synchronize()
        return float(sum(begin.elapsed_time(end) for begin, end in marks)) * 1e3 / number

    def _type(self, name: str) -> Any:
        return getattr(self._torch, name)

    def _compute(self, task: Task, inputs: list[Any]) -> Callable[[], Any]:
        functional, first, rest = self._torch.nn.functional, inputs[0], inputs[1:]
        if task.kind == PRODUCT:
            return lambda: first @ rest[0]
        if task.kind == BATCH:
            return lambda: functional.scaled_dot_product_attention(first, *rest)
        if task.kind == CONVOLUTION:  # both in cuDNN's fastest layout, channels last
            x = first.permute(0, 3, 1, 2)
            weights = rest[0].permute(3, 2, 0, 1).contiguous(memory_format=self._torch.channels_last)
            return lambda: functional.conv2d(x, weights, padding=1).permute(0, 2, 3, 1)
        if task.kind == DEPTHWISE:
            kernels = rest[0][:, None]
            return lambda: functional.conv2d(first, kernels, padding=1, groups=len(kernels))
        if task.kind == NORM:
            return lambda: functional.layer_norm(first, first.shape[1:], *rest, _EPSILON)
        return lambda: self._torch.softmax(first, -1)


class NumpyArithmetic:
    """Arithmetic on a processor with numpy, which has no rivals."""

    def __init__(self) -> None:
        import numpy as np

        self._np: Any = np

    def inputs(self, task: Task) -> list[Any]:
        rng = self._np.random.default_rng(SEED)
        found = []
        for shape in shapes(task)[:-1]:
            found.append(self._aligned(shape, task.dtype))
            found[-1][...] = rng.standard_normal(shape)
        return found

    def expected(self, task: Task, inputs: list[Any]) -> Any:
        np, (first, *rest) = self._np, [each.astype("float64") for each in inputs]
        if task.kind == PRODUCT:
            return first @ rest[0]
        if task.kind == BATCH:
            width = first.shape[-1]
            return self._softmax(first @ rest[0].swapaxes(1, 2) / width**0.5) @ rest[1]
        if task.kind == CONVOLUTION:
            return self._shifted(first, (1, 2), lambda x, i, j: x @ rest[0][i, j])
        if task.kind == DEPTHWISE:
            return self._shifted(first, (2, 3), lambda x, i, j: x * rest[0][:, i, j, None, None])
        if task.kind == NORM:
            centred = first - first.mean(1, keepdims=True)
            return centred / np.sqrt((centred**2).mean(1, keepdims=True) + _EPSILON) * rest[0] + rest[1]
        return self._softmax(first)

    def result(self, task: Task) -> Any:
        result = self._aligned(shapes(task)[-1], task.sums)
        result[...] = self._np.nan
        return result

    def error(self, result: Any, expected: Any) -> float:
        norm = self._np.linalg.norm
        return float(norm((result.astype("float64") - expected).ravel()) / norm(expected.ravel()))

    def tvm(self, array: Any) -> Any:
        import tvm

        return tvm.runtime.from_dlpack(array)

    def rival(self, task: Task, inputs: list[Any]) -> tuple[str, Call] | None:
        return None

    def tensor_float(self, allowed: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def times_us(self, call: Call, number: int, cold: bool) -> float:
        return _host_times_us(call, number)

    def _aligned(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return memory that begins where TVM lets tensors begin."""
        size = self._np.dtype(dtype).itemsize * prod(shape)
        memory = self._np.empty(size + _ALIGNMENT, "uint8")
        begin = -memory.ctypes.data % _ALIGNMENT
        return memory[begin : begin + size].view(dtype).reshape(shape)

    def _softmax(self, x: Any) -> Any:
        powers = self._np.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    def _shifted(self, x: Any, axes: tuple[int, int], weigh: Callable[[Any, int, int], Any]) -> Any:
        """Return the sum over a 3x3 window of what `weigh` makes of the window's place."""
        width = [(1, 1) if axis in axes else (0, 0) for axis in range(x.ndim)]
        border, height = self._np.pad(x, width), x.shape[axes[0]]
        total: Any = 0.0
        for i in range(3):
            for j in range(3):
                cut = [slice(None)] * x.ndim
                cut[axes[0]], cut[axes[1]] = slice(i, i + height), slice(j, j + height)
                total = total + weigh(border[tuple(cut)], i, j)
        return total


def _host_times_us(call: Call, number: int) -> float:
    began_sec = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - began_sec) * 1e6 / number
