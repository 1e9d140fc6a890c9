"""Rival libraries of a task and their inputs, by torch; without torch there is no rival."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

from benchmarks.gpu.device import CUDA
from benchmarks.gpu.tasks import (
    BATCH,
    BLOCK,
    CHANNELS_LAST,
    CODED,
    CONVOLUTION,
    DEPTHWISE,
    EPSILON,
    FUSED,
    NORM,
    ONE_KERNEL,
    POOL,
    PRODUCT,
    SOFTMAX,
    SUM,
    TF32,
    TRANSPOSE,
    TRANSPOSED,
    Task,
)
from mallorn.workers.detached.run_batch import Json
from mallorn.workers.device.random_and_saved_arrays import random_values

_FLUSH_BYTES: Final = 256 << 20  # several times the L2 cache of any GPU
Call = Callable[[], object]
_LIBRARIES: Final = {
    **dict.fromkeys((PRODUCT, TRANSPOSED), "cuBLAS"),
    TF32: "cuBLAS in TF32",
    CODED: "cuBLAS in fp16",
    FUSED: "cuBLAS, then ReLU",
    **dict.fromkeys((BATCH, ONE_KERNEL), "torch SDPA"),
    **dict.fromkeys((CONVOLUTION, DEPTHWISE, CHANNELS_LAST), "cuDNN"),
}


class Arithmetic(Protocol):
    """Makes inputs and times calls; may know a library that computes a task."""

    def inputs(self, args: Json) -> list[Any]:
        """Return arguments with the values with which run_batch.py times kernels."""

    def rival(self, task: Task, inputs: list[Any]) -> tuple[str, Call] | None:
        """Return name and call of a library that computes the task, or None."""

    def tensor_float(self, allowed: bool) -> AbstractContextManager[None]:
        """Set whether the library may round float32 factors to TensorFloat-32 in the block."""

    def times_us(self, call: Call, number: int, cold: bool) -> float:
        """Return the mean time of `number` calls, each with a cold L2 cache if `cold`."""


def random_inputs(args: Json) -> list[Any]:
    """Return random arguments of these types, shapes and ranges, as run_batch.py draws them."""
    return [
        random_values(tuple(shape), dtype, low, high, seed)
        for seed, (dtype, shape, low, high) in enumerate(args)
    ]


def arithmetic_of(kind: str) -> Arithmetic:
    """Return torch's arithmetic; numpy's if torch is missing and the device is a CPU."""
    if importlib.util.find_spec("torch") is None and kind != CUDA:
        return NumpyArithmetic()
    return TorchArithmetic(kind)


class TorchArithmetic:
    """Arithmetic with torch, on a GPU or a CPU."""

    def __init__(self, kind: str) -> None:
        import torch

        self._torch: Any = torch
        self._kind = kind
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        self._flush: Any = None
        self._burst: tuple[Call, int, Call] | None = None

    def inputs(self, args: Json) -> list[Any]:
        return [self._tensor(array).to(self._kind) for array in random_inputs(args)]

    def _tensor(self, array: Any) -> Any:
        if str(array.dtype) == "bfloat16":
            return self._torch.from_numpy(array.view("int16")).view(self._torch.bfloat16)
        return self._torch.from_numpy(array.view("int32") if array.dtype == "uint32" else array)

    def rival(self, task: Task, inputs: list[Any]) -> tuple[str, Call] | None:
        name = _LIBRARIES.get(task.kind, f"torch {task.kind}") if self._kind == CUDA else "torch"
        return name, self._compute(task, inputs)

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
        burst, marks = call if cold else self._burst_of(call, number), []
        for _ in range(number if cold else 1):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            if cold:
                self._flush.zero_()
            begin.record()
            burst()
            end.record()
            marks.append((begin, end))
        torch.cuda.synchronize()
        return float(sum(begin.elapsed_time(end) for begin, end in marks)) * 1e3 / number

    def _burst_of(self, call: Call, number: int) -> Call:
        """Return `number` calls as one CUDA graph, in which the GPU never waits for Python."""
        if self._burst is None or self._burst[:2] != (call, number):
            torch = self._torch
            for _ in range(3):  # libraries choose algorithms before the capture
                call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(number):
                    call()
            self._burst = (call, number, graph.replay)
        return self._burst[2]

    def _compute(self, task: Task, inputs: list[Any]) -> Callable[[], Any]:
        calls: dict[str, Callable[..., Callable[[], Any]]] = {
            PRODUCT: self._product,
            TRANSPOSED: lambda x, weights: self._product(x, weights.t()),
            TF32: self._tf32_product,
            FUSED: self._fused_product,
            CODED: lambda x, *coded: self._product(x, self._decoded(task, *coded).t()),
            **dict.fromkeys((BATCH, ONE_KERNEL), self._attention),
            CONVOLUTION: self._convolution,
            DEPTHWISE: self._depthwise,
            CHANNELS_LAST: self._depthwise_channels_last,
            SOFTMAX: lambda x: lambda: self._torch.softmax(x, -1),
            NORM: self._layer_norm,
            TRANSPOSE: lambda x: lambda: x.t().contiguous(),
            SUM: lambda left, right: lambda: left + right,
            POOL: self._max_pool,
        }
        return calls[task.kind](*inputs)

    def _product(self, x: Any, weights: Any) -> Callable[[], Any]:
        if x.dtype == self._torch.int8:
            return lambda: self._torch._int_mm(x, weights)
        return lambda: x @ weights

    def _tf32_product(self, x: Any, weights: Any) -> Callable[[], Any]:
        def call() -> Any:
            with self.tensor_float(True):
                return x @ weights

        return call

    def _fused_product(self, x: Any, weights: Any, bias: Any) -> Callable[[], Any]:
        torch, in_type = self._torch, bias.to(x.dtype)
        return lambda: torch.addmm(in_type, x, weights).relu_()

    def _decoded(self, task: Task, words: Any, scales: Any) -> Any:
        """Return weights of few bits as the numbers that they stand for, [outputs, inputs]."""
        bits, (outputs, inputs) = task.sizes[-1], task.sizes[1:3]
        shifts = self._torch.arange(0, 32, bits, dtype=self._torch.int32, device=words.device)
        codes = words[..., None] >> shifts & ((1 << bits) - 1)
        numbers = codes.reshape(outputs, inputs).float() - (1 << bits - 1)
        return (numbers * scales.float().repeat_interleave(BLOCK, 1)).to(scales.dtype)

    def _attention(self, *inputs: Any) -> Callable[[], Any]:
        heads = [each[None] for each in inputs]  # fast kernels demand a batch of heads
        return lambda: self._torch.nn.functional.scaled_dot_product_attention(*heads)[0]

    def _convolution(self, images: Any, kernels: Any) -> Callable[[], Any]:
        # Both in cuDNN's fastest layout, channels last.
        functional, x = self._torch.nn.functional, images.permute(0, 3, 1, 2)
        weights = kernels.permute(3, 2, 0, 1).contiguous(memory_format=self._torch.channels_last)
        return lambda: functional.conv2d(x, weights, padding=1).permute(0, 2, 3, 1)

    def _depthwise(self, images: Any, kernels: Any) -> Callable[[], Any]:
        functional, weights = self._torch.nn.functional, kernels[:, None]
        return lambda: functional.conv2d(images, weights, padding=1, groups=len(weights))

    def _depthwise_channels_last(self, images: Any, kernels: Any) -> Callable[[], Any]:
        functional, x, weights = (
            self._torch.nn.functional,
            images.permute(0, 3, 1, 2),
            kernels.permute(2, 3, 0, 1),
        )
        return lambda: functional.conv2d(x, weights, padding=1, groups=len(weights)).permute(0, 2, 3, 1)

    def _layer_norm(self, x: Any, scale: Any, shift: Any) -> Callable[[], Any]:
        functional = self._torch.nn.functional
        return lambda: functional.layer_norm(x, x.shape[1:], scale, shift, EPSILON)

    def _max_pool(self, images: Any) -> Callable[[], Any]:
        functional, x = self._torch.nn.functional, images.permute(0, 3, 1, 2)
        return lambda: functional.max_pool2d(x, 3, 2, 1).permute(0, 2, 3, 1)


class NumpyArithmetic:
    """Arithmetic with numpy on a CPU, without rivals."""

    def inputs(self, args: Json) -> list[Any]:
        return random_inputs(args)

    def rival(self, task: Task, inputs: list[Any]) -> tuple[str, Call] | None:
        return None

    def tensor_float(self, allowed: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def times_us(self, call: Call, number: int, cold: bool) -> float:
        return _host_times_us(call, number)


def _host_times_us(call: Call, number: int) -> float:
    began_sec = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - began_sec) * 1e6 / number
