"""Small networks around one kind of layer that the well-known architectures leave out."""

from collections.abc import Callable

import torch
from networks import Network
from torch import nn

WIDTH = 256


def layers() -> dict[str, Callable[[], Network]]:
    """By name; each is made when it is asked for."""
    return {
        "layer-lstm": lambda: _recurrent(nn.LSTM(64, WIDTH, 2, batch_first=True)),
        "layer-lstm-both-ways": lambda: _recurrent(nn.LSTM(64, WIDTH, batch_first=True, bidirectional=True)),
        "layer-gru": lambda: _recurrent(nn.GRU(64, WIDTH, 2, batch_first=True)),
        "layer-tcn": _tcn,
        "layer-generator": _generator,
        "layer-unet": _unet,
        "layer-conv3d": _volumes,
        "layer-transformer": _transformer,
        "layer-recommender": _recommender,
        "layer-half": _half,
    }


class _Last(nn.Module):
    """A classifier of what a recurrent layer knows in the end."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        ways = 2 if layer.bidirectional else 1
        self.layer, self.head = layer, nn.Linear(ways * layer.hidden_size, 10)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        known, _ = self.layer(steps)
        scores: torch.Tensor = self.head(known[:, -1])
        return scores


def _recurrent(layer: nn.RNNBase) -> Network:
    return Network(_Last(layer), {"steps": torch.randn(1, 64, 64)})


def _tcn() -> Network:
    blocks: list[nn.Module] = [nn.Conv1d(32, 128, 1)]
    for power in range(6):
        far = 2**power
        blocks += [nn.ConstantPad1d((2 * far, 0), 0.0), nn.Conv1d(128, 128, 3, dilation=far), nn.ReLU()]
    return Network(nn.Sequential(*blocks), {"signal": torch.randn(1, 32, 512)})


def _generator() -> Network:
    blocks: list[nn.Module] = [nn.ConvTranspose2d(100, 512, 4), nn.BatchNorm2d(512), nn.ReLU()]
    for channels in (512, 256, 128):
        half = channels // 2
        blocks += [nn.ConvTranspose2d(channels, half, 4, 2, 1), nn.BatchNorm2d(half), nn.ReLU()]
    blocks += [nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()]
    return Network(nn.Sequential(*blocks), {"noise": torch.randn(1, 100, 1, 1)})


def _pair(inside: int, outside: int) -> nn.Module:
    def one(channels: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, outside, 3, padding=1), nn.GroupNorm(8, outside), nn.SiLU()]

    return nn.Sequential(*one(inside), *one(outside))


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = (32, 64, 128)
        self.down = nn.ModuleList(_pair(a, b) for a, b in zip((3, *sizes), sizes, strict=False))
        self.up = nn.ModuleList(_pair(a + b, b) for a, b in ((128, 64), (64, 32)))
        self.head = nn.Conv2d(32, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        kept = []
        for block in self.down:
            image = block(image)
            kept.append(image)
            image = nn.functional.max_pool2d(image, 2)
        image = kept.pop()
        for block in self.up:
            wide = nn.functional.interpolate(image, scale_factor=2.0, mode="bilinear", align_corners=False)
            image = block(torch.cat([wide, kept.pop()], 1))
        planes: torch.Tensor = self.head(image)
        return planes


def _unet() -> Network:
    return Network(_UNet(), {"image": torch.randn(1, 3, 128, 128)})


def _volumes() -> Network:
    one = [nn.Conv3d(1, 16, 3, padding=1), nn.InstanceNorm3d(16), nn.ReLU(), nn.MaxPool3d(2)]
    two = [
        nn.Conv3d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    ]
    return Network(nn.Sequential(*one, *two), {"scan": torch.randn(1, 1, 32, 64, 64)})


def _transformer() -> Network:
    layer = nn.TransformerEncoderLayer(WIDTH, 8, 1024, batch_first=True, activation="gelu")
    return Network(
        nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), {"x": torch.randn(1, 197, WIDTH)}
    )


class _Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(10_000, 32, mode="sum") for _ in range(8))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(32 + 36, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())

    def forward(self, dense: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        low = self.bottom(dense)
        rows = [low, *(table(kinds[:, n : n + 1]) for n, table in enumerate(self.tables))]
        stacked = torch.stack(rows, 1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        above = torch.triu_indices(9, 9, offset=1)
        score: torch.Tensor = self.top(torch.cat([low, products[:, above[0], above[1]]], 1))
        return score


def _recommender() -> Network:
    inputs = {"dense": torch.randn(32, 13), "kinds": torch.randint(0, 10_000, (32, 8))}
    return Network(_Recommender(), inputs)


def _half() -> Network:
    layers = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512)).half()
    return Network(layers, {"x": torch.randn(64, 512).half()})
