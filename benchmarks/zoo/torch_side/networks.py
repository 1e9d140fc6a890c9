"""A network to export: its module in evaluation mode, and its inputs by name."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Network:
    """What an exporter takes."""

    module: torch.nn.Module
    inputs: Mapping[str, torch.Tensor]
