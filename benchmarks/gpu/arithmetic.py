"""Rival libraries of a task and their inputs, by torch; without torch there is no rival."""

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

from benchmarks.gpu.device import CUDA
from benchmarks.gpu.tasks import BATCH, CONVOLUTION, DEPTHWISE, NORM, PRODUCT, Task
from mallorn.workers.detached.run_batch import Json, random_timing_arguments

_EPSILON: Final = 1e-5
_FLUSH_BYTES: Final = 256 << 20  # several times the L2 cache of any GPU
Call = Callable[[], object]


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
        return [self._tensor(array).to(self._kind) for array in random_timing_arguments(args)]

    def _tensor(self, array: Any) -> Any:
        if str(array.dtype) != "bfloat16":
            return self._torch.from_numpy(array)
        return self._torch.from_numpy(array.view("int16")).view(self._torch.bfloat16)

    def rival(self, task: Task, inputs: list[Any]) -> tuple[str, Call] | None:
        libraries = {PRODUCT: "cuBLAS", CONVOLUTION: "cuDNN", DEPTHWISE: "cuDNN", BATCH: "torch SDPA"}
        name = libraries.get(task.kind, f"torch {task.kind}") if self._kind == CUDA else "torch"
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
        functional, first, rest = self._torch.nn.functional, inputs[0], inputs[1:]
        if task.kind == PRODUCT and task.dtype == "int8":
            return lambda: self._torch._int_mm(first, rest[0])
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
    """Arithmetic with numpy on a CPU, without rivals."""

    def inputs(self, args: Json) -> list[Any]:
        return random_timing_arguments(args)

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
