"""Five small torch networks with random weights, and example inputs for each."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two convolutions with batch norm, added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(y)))


class Residual(nn.Module):
    """A small ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(ResidualBlock(32), ResidualBlock(32))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(self.pool(self.stem(x)))
        logits: Tensor = self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(y, 1), 1))
        return logits


class Perceptron(nn.Module):
    """Three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10), nn.Softmax(-1)
        )

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layers(x)
        return scores


class Transformer(nn.Module):
    """One block: attention and a feed-forward network, each after a layer norm."""

    def __init__(self, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        result: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return result


class Depthwise(nn.Module):
    """Inverted residuals as in MobileNetV2."""

    def __init__(self) -> None:
        super().__init__()

        def inverted(channels: int, wide: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(channels, wide, 1, bias=False),
                nn.BatchNorm2d(wide),
                nn.ReLU6(),
                nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False),
                nn.BatchNorm2d(wide),
                nn.Hardswish(),
                nn.Conv2d(wide, channels, 1, bias=False),
                nn.BatchNorm2d(channels),
            )

        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.first, self.second = inverted(16, 64), inverted(16, 96)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.first(x)
        x = x + self.second(x)
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class Words(nn.Module):
    """An embedding, dilated convolutions over time and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.convs = nn.ModuleList(nn.Conv1d(64, 128, 3, padding=d, dilation=d) for d in (1, 2, 4))
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 1000)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for conv in self.convs:
            values, gates = conv(x.transpose(1, 2)).chunk(2, 1)
            x = x + (values * torch.sigmoid(gates)).transpose(1, 2)
        scores: Tensor = self.head(self.norm(x))
        return scores


def _image() -> tuple[Tensor, ...]:
    return (torch.randn(1, 3, 64, 64),)


NETWORKS: Final[Mapping[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]]] = {
    "residual": (Residual, _image),
    "perceptron": (Perceptron, lambda: (torch.randn(1, 256),)),
    "transformer": (Transformer, lambda: (torch.randn(1, 64, 128),)),
    "depthwise": (Depthwise, _image),
    "words": (Words, lambda: (torch.randint(0, 1000, (1, 48)),)),
}


def build(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a network by name, in evaluation mode, and its example inputs."""
    torch.manual_seed(0)
    network, inputs = NETWORKS[name]
    return network().eval(), inputs()
