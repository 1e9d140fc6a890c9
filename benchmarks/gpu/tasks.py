"""Operators that are compiled here and timed on the GPU machine."""

from dataclasses import dataclass
from math import prod
from typing import Final, NamedTuple

from mallorn.workers.device.random_and_saved_arrays import dtype_of

PRODUCT: Final = "product"
TRANSPOSED: Final = (
    "product with transposed weights"  # stored by outputs, as linear layers of torch store them
)
TF32: Final = "product in TF32"
FUSED: Final = "product, bias and ReLU"
CODED: Final = "product with weights of few bits"
BATCH: Final = "attention"
ONE_KERNEL: Final = "attention in one kernel"
CONVOLUTION: Final = "convolution"
DEPTHWISE: Final = "depthwise"
CHANNELS_LAST: Final = "depthwise, channels last"
SOFTMAX: Final = "softmax"
NORM: Final = "layer norm"
TRANSPOSE: Final = "transpose"
SUM: Final = "sum"
POOL: Final = "max pool"
PRODUCTS: Final = (PRODUCT, TRANSPOSED, TF32, FUSED, CODED)

EPSILON: Final = 1e-5  # of a layer norm
BLOCK: Final = 32  # weights of few bits that share a scale
_WORD: Final = 32  # bits of a word of such weights
HALVES: Final = ("float16", "bfloat16")
# Error over the largest value above which a kernel is wrong, by data type of its sums.
_LARGEST_ERROR: Final = {"float32": 1e-3, "float16": 5e-2, "int32": 0.0}
_ROUNDED_ERROR: Final = 5e-3  # of float32 sums whose results are rounded to 16 bits


@dataclass(frozen=True, slots=True)
class Task:
    """An operator with sizes and data types: of its inputs, its sums and its result.

    Sizes: `m, n, k` of a product, and the bits of its weights where they are few; `heads, tokens, width` of
    attention; `images, height, channels in, channels out` of a 3x3 convolution (NHWC); `images, channels,
    height` of a depthwise one (NCHW, or NHWC with channels last) and of a 3x3 max pool with strides of two
    (NHWC); `rows, columns`.
    """

    name: str
    kind: str
    sizes: tuple[int, ...]
    dtype: str = "float32"
    sums: str = "float32"
    result: str = ""  # empty: that of the sums


class Operand(NamedTuple):
    """An input or the result of a task."""

    dtype: str
    shape: tuple[int, ...]


def _halves(name: str, kind: str, *sizes: int, sums: str = "float32", result: str = "") -> Task:
    return Task(
        f"{name} fp16{' sums fp32' if sums == 'float32' else ''}", kind, sizes, "float16", sums, result
    )


def _attention(heads: int, tokens: int, width: int) -> Task:
    name = f"attention {heads}x{tokens}x{width} fp16 in one kernel"
    return Task(name, ONE_KERNEL, (heads, tokens, width), "float16", "float32", "float16")


def _coded(bits: int, *sizes: int, name: str = "product with a vector") -> Task:
    _, n, k = sizes
    return Task(f"{name} {n}x{k} int{bits} weights", CODED, (*sizes, bits), "float16")


WGMMA_TASK: Final = "product 4096 transposed fp16 sums fp32"  # what the prototype by `wgmma` computes

# Twelve tasks that part 3 searches, those first that show most: what the space names.
SEARCHED: Final = (
    _halves("product 4096 transposed", TRANSPOSED, 4096, 4096, 4096),
    _coded(4, 1, 8192, 8192),
    _attention(12, 128, 64),
    _halves("product 512 bias ReLU", FUSED, 512, 512, 512, result="float16"),
    Task("product 1000x777x1234 fp32", PRODUCT, (1000, 777, 1234)),
    _halves("product with a vector 8192x8192", PRODUCT, 1, 8192, 8192),
    _halves("depthwise 1x56x56x144", CHANNELS_LAST, 1, 144, 56),
    _halves("convolution 8x28x28x128 to 128", CONVOLUTION, 8, 28, 128, 128),
    Task("layer norm 4096x768 fp32", NORM, (4096, 768)),
    Task("product 2048 tf32", TF32, (2048, 2048, 2048)),
    _halves("product 16x4096x4096", PRODUCT, 16, 4096, 4096),
    Task("product 2048 transposed int8 sums int32", TRANSPOSED, (2048, 2048, 2048), "int8", "int32"),
)
# Tasks whose kernels part 1 times: those that are searched, and other sizes and types of their rows.
GPU: Final = (
    *SEARCHED,
    _halves("product 8192", PRODUCT, 8192, 8192, 8192),
    Task("product 4096 bf16 sums fp32", PRODUCT, (4096, 4096, 4096), "bfloat16"),
    _halves("product 1000x777x1234", PRODUCT, 1000, 777, 1234),
    Task("product 2048 fp32", PRODUCT, (2048, 2048, 2048)),
    _halves("product 4096 bias ReLU", FUSED, 4096, 4096, 4096, result="float16"),
    Task("softmax 4096x1024 fp32", SOFTMAX, (4096, 1024)),
    Task("transpose 4096x1024 fp32", TRANSPOSE, (4096, 1024)),
    _attention(12, 384, 64),
)
# The other tasks of the first part 1, whose kernels are in the recorded arena.
RECORDED: Final = (
    _halves("product 512", PRODUCT, 512, 512, 512, sums="float16"),
    _halves("product 4096", PRODUCT, 4096, 4096, 4096, sums="float16"),
    _halves("convolution 8x28x28x128 to 128", CONVOLUTION, 8, 28, 128, 128, sums="float16"),
    Task("depthwise 1x144x56x56 fp32", DEPTHWISE, (1, 144, 56)),
    Task("attention 12x128x64 fp32", BATCH, (12, 128, 64)),
)
# More programs whose first guesses `benchmarks.cuda_kinds` compiles.
COMPILED: Final = (
    Task("product 2048 int8 sums int32", PRODUCT, (2048, 2048, 2048), "int8", "int32"),
    Task("product 1000x777x1234 tf32", TF32, (1000, 777, 1234)),
    _coded(8, 1, 8192, 8192),
    _attention(12, 77, 64),
    Task("depthwise 1x56x56x144 fp32", CHANNELS_LAST, (1, 144, 56)),
    Task("max pool 1x56x56x144 fp32", POOL, (1, 144, 56)),
    Task("sum 4096x1024 fp32", SUM, (4096, 1024)),
)

# The same kinds, small enough for a CPU to run each in milliseconds.
REHEARSAL: Final = (
    Task("product 32x48x40 fp32", PRODUCT, (32, 48, 40)),
    _halves("product 32x48x64 transposed", TRANSPOSED, 32, 48, 64),
    Task("product 32x48x40 tf32", TF32, (32, 48, 40)),
    _halves("product 32x48x40 bias ReLU", FUSED, 32, 48, 40, result="float16"),
    _halves("product with a vector 64x96", PRODUCT, 1, 64, 96),
    _coded(4, 1, 64, 96),
    _coded(8, 2, 48, 64, name="product with two rows"),
    Task("convolution 1x8x8x4 to 8 fp32", CONVOLUTION, (1, 8, 4, 8)),
    Task("depthwise 1x4x8x8 fp32", DEPTHWISE, (1, 4, 8)),
    _halves("depthwise 1x8x8x4", CHANNELS_LAST, 1, 4, 8),
    Task("max pool 1x8x8x4 fp32", POOL, (1, 4, 8)),
    Task("softmax 16x32 fp32", SOFTMAX, (16, 32)),
    Task("layer norm 16x32 fp32", NORM, (16, 32)),
    Task("transpose 16x32 fp32", TRANSPOSE, (16, 32)),
    Task("sum 16x32 fp32", SUM, (16, 32)),
    Task("attention 2x8x16 fp32", BATCH, (2, 8, 16)),
    _attention(2, 20, 16),
)
SEARCHED_REHEARSAL: Final = (
    Task("product 16x32x24 int8 sums int32", PRODUCT, (16, 32, 24), "int8", "int32"),
)
BY_NAME: Final = {task.name: task for task in (*GPU, *RECORDED, *COMPILED, *REHEARSAL, *SEARCHED_REHEARSAL)}


def operands(task: Task) -> tuple[Operand, ...]:
    """Return the inputs, followed by the result."""
    *inputs, result = _shapes(task)
    types = [task.dtype] * len(inputs)
    if task.kind == CODED:
        types = [task.dtype, "uint32", "float16"]
    elif task.kind == FUSED:
        types[-1] = task.sums
    return (*map(Operand, types, inputs), Operand(task.result or task.sums, result))


def _shapes(task: Task) -> tuple[tuple[int, ...], ...]:
    sizes = task.sizes
    if task.kind == CODED:
        m, n, k, bits = sizes
        return (m, k), (n, k * bits // _WORD), (n, k // BLOCK), (m, n)
    if task.kind in PRODUCTS:
        m, n, k = sizes
        weights = (n, k) if task.kind == TRANSPOSED else (k, n)
        return (m, k), weights, *([(n,)] if task.kind == FUSED else []), (m, n)
    if task.kind in (BATCH, ONE_KERNEL):
        return sizes, sizes, sizes, sizes
    if task.kind == CONVOLUTION:
        images, height, channels_in, channels_out = sizes
        images_in = (images, height, height, channels_in)
        return images_in, (3, 3, channels_in, channels_out), (*images_in[:3], channels_out)
    if task.kind == DEPTHWISE:
        images, channels, height = sizes
        return (images, channels, height, height), (channels, 3, 3), (images, channels, height, height)
    if task.kind == CHANNELS_LAST:
        images, channels, height = sizes
        pixels = (images, height, height, channels)
        return pixels, (3, 3, channels, 1), pixels
    if task.kind == POOL:
        images, channels, height = sizes
        half = -(-height // 2)
        return (images, height, height, channels), (images, half, half, channels)
    if task.kind == NORM:
        return sizes, sizes[1:], sizes[1:], sizes
    if task.kind == SUM:
        return sizes, sizes, sizes
    return sizes, sizes[::-1] if task.kind == TRANSPOSE else sizes


def largest_error(task: Task) -> float:
    """Return the error over the largest value above which a kernel is wrong."""
    is_rounded = task.result in HALVES and task.sums not in HALVES
    return _ROUNDED_ERROR if is_rounded else _LARGEST_ERROR[task.sums]


def operand_bytes(task: Task) -> int:
    """Return the bytes of all inputs and of the result, which a kernel reads and writes at least once."""
    return sum(dtype_of(dtype).itemsize * prod(shape) for dtype, shape in operands(task))


def multiplications(task: Task) -> int:
    """Return the number of multiplications of a product; 0 for other kinds."""
    if task.kind not in PRODUCTS:
        return 0
    m, n, k, *_ = task.sizes
    return m * n * k
