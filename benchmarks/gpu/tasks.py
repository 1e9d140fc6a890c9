"""Operators that are compiled here and timed on the GPU machine."""

from dataclasses import dataclass
from typing import Final

PRODUCT: Final = "product"
BATCH: Final = "attention"
CONVOLUTION: Final = "convolution"
DEPTHWISE: Final = "depthwise"
SOFTMAX: Final = "softmax"
NORM: Final = "layer norm"

# Error over the largest value above which a kernel is wrong, by data type of its sums.
LARGEST_ERROR: Final = {"float32": 1e-3, "float16": 5e-2, "int32": 0.0}


@dataclass(frozen=True, slots=True)
class Task:
    """An operator with sizes and data types.

    Sizes: `m, n, k` of a product; `heads, tokens, width` of attention; `images, height, channels in, channels
    out` of a 3x3 convolution (NHWC); `images, channels, height` of a depthwise one (NCHW); `rows, columns`.
    """

    name: str
    kind: str
    sizes: tuple[int, ...]
    dtype: str = "float32"
    sums: str = "float32"


def _halves(name: str, kind: str, *sizes: int, sums: str = "float16") -> Task:
    return Task(f"{name} fp16{' sums fp32' if sums == 'float32' else ''}", kind, sizes, "float16", sums)


GPU: Final = (
    _halves("product 512", PRODUCT, 512, 512, 512),
    _halves("product 4096", PRODUCT, 4096, 4096, 4096),
    _halves("product 8192", PRODUCT, 8192, 8192, 8192, sums="float32"),
    Task("product 2048 fp32", PRODUCT, (2048, 2048, 2048)),
    Task("product 1000x777x1234 fp32", PRODUCT, (1000, 777, 1234)),
    _halves("product 16x4096x4096", PRODUCT, 16, 4096, 4096, sums="float32"),
    _halves("product with a vector 8192x8192", PRODUCT, 1, 8192, 8192, sums="float32"),
    _halves("convolution 8x28x28x128 to 128", CONVOLUTION, 8, 28, 128, 128),
    Task("depthwise 1x144x56x56 fp32", DEPTHWISE, (1, 144, 56)),
    Task("softmax 4096x1024 fp32", SOFTMAX, (4096, 1024)),
    Task("layer norm 4096x768 fp32", NORM, (4096, 768)),
    Task("attention 12x128x64 fp32", BATCH, (12, 128, 64)),
)

# The same kinds, small enough for a CPU to run each in milliseconds.
REHEARSAL: Final = (
    Task("product 32x48x40 fp32", PRODUCT, (32, 48, 40)),
    _halves("product with a vector 64x96", PRODUCT, 1, 64, 96, sums="float32"),
    Task("convolution 1x8x8x4 to 8 fp32", CONVOLUTION, (1, 8, 4, 8)),
    Task("depthwise 1x4x8x8 fp32", DEPTHWISE, (1, 4, 8)),
    Task("softmax 16x32 fp32", SOFTMAX, (16, 32)),
    Task("layer norm 16x32 fp32", NORM, (16, 32)),
    Task("attention 2x8x16 fp32", BATCH, (2, 8, 16)),
)
# Twelve tasks that part 3 searches: all kinds, and products of five data types.
_SEARCHED_BEFORE: Final = (
    "product 512 fp16",
    "product 4096 fp16",
    "product 1000x777x1234 fp32",
    "product 16x4096x4096 fp16 sums fp32",
    "product with a vector 8192x8192 fp16 sums fp32",
    "convolution 8x28x28x128 to 128 fp16",
    "depthwise 1x144x56x56 fp32",
    "softmax 4096x1024 fp32",
    "layer norm 4096x768 fp32",
    "attention 12x128x64 fp32",
)
SEARCHED: Final = (
    *(task for task in GPU if task.name in _SEARCHED_BEFORE),
    Task("product 4096 bf16 sums fp32", PRODUCT, (4096, 4096, 4096), "bfloat16"),
    Task("product 2048 int8 sums int32", PRODUCT, (2048, 2048, 2048), "int8", "int32"),
)
SEARCHED_REHEARSAL: Final = (
    Task("product 16x32x24 int8 sums int32", PRODUCT, (16, 32, 24), "int8", "int32"),
)
BY_NAME: Final = {task.name: task for task in (*GPU, *REHEARSAL, *SEARCHED, *SEARCHED_REHEARSAL)}


def shapes(task: Task) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the inputs, followed by that of the result."""
    sizes = task.sizes
    if task.kind == PRODUCT:
        m, n, k = sizes
        return (m, k), (k, n), (m, n)
    if task.kind == BATCH:
        return sizes, sizes, sizes, sizes
    if task.kind == CONVOLUTION:
        images, height, channels_in, channels_out = sizes
        images_in = (images, height, height, channels_in)
        return images_in, (3, 3, channels_in, channels_out), (*images_in[:3], channels_out)
    if task.kind == DEPTHWISE:
        images, channels, height = sizes
        return (images, channels, height, height), (channels, 3, 3), (images, channels, height, height)
    if task.kind == NORM:
        return sizes, sizes[1:], sizes[1:], sizes
    return sizes, sizes


def multiplications(task: Task) -> int:
    """Return the number of multiplications of a product; 0 for other kinds."""
    if task.kind != PRODUCT:
        return 0
    m, n, k = task.sizes
    return m * n * k
