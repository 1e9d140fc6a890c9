"""Building blocks of the torch networks; torch is an optional dependency."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

FAR: Final = -1e9  # logit that gets weight 0 in a softmax
Layers = dict[str, NDArray[np.floating]]
Tensors = Mapping[str, "Tensor"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Make torch use one thread, for reproducible sums and without spinning threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def dense_layers(
    rng: np.random.Generator, name: str, before: int, after: int, *, gain: float = 1.0
) -> Layers:
    """Return He-initialised weights and zero offsets."""
    weights = rng.normal(0, gain * np.sqrt(2 / before), (before, after))
    offsets = np.zeros(after, dtype=np.float32)
    return {f"{name}.weights": weights.astype(np.float32), f"{name}.offsets": offsets}


def dense(layers: Tensors, name: str, values: "Tensor") -> "Tensor":
    """Apply one dense layer to the last axis."""
    return values @ layers[f"{name}.weights"] + layers[f"{name}.offsets"]


def normal(values: "Tensor") -> "Tensor":
    """Normalise the last axis to mean 0 and deviation 1."""
    centred = values - values.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def mean_of(values: "Tensor", present: "Tensor") -> "Tensor":
    """Return the mean over the lines marked in `present` (rows x lines); zero without any."""
    lines = present.sum(1, keepdim=True).clamp(min=1)
    return (values * present[:, :, None]).sum(1) / lines


def attention(layers: Tensors, lines: "Tensor", present: "Tensor", heads: int) -> "Tensor":
    """Apply self-attention over the lines marked in `present`, with the layer `look`."""
    rows, count, width = lines.shape
    looks = dense(layers, "look", lines).reshape(rows, count, 3, heads, width // heads)
    asks, offers, values = looks.permute(2, 0, 3, 1, 4).unbind(0)
    match = asks @ offers.transpose(-1, -2) / sqrt(width // heads)
    share = match.masked_fill(present[:, None, None, :] == 0, FAR).softmax(-1)
    return (share @ values).transpose(1, 2).reshape(rows, count, width)
