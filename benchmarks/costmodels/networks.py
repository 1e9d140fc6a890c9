"""Which network calls which workload how often, beside frozen rows: an export does not tell it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mallorn.core.errors import InvalidRequest
from mallorn_research.pretraining.training_data import Weights

FILE: Final = "networks.json"


def write_networks(directory: Path, weights: Mapping[str, Weights]) -> None:
    """By the networks' names."""
    told = {name.removesuffix(".onnx"): dict(calls) for name, calls in weights.items()}
    (directory / FILE).write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


def read_networks(directory: Path) -> dict[str, Weights] | None:
    """None where nothing was written. Raises InvalidRequest for a file that tells something else."""
    path = directory / FILE
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text())
        return {name: {key: int(calls[key]) for key in calls} for name, calls in found.items()}
    except (AttributeError, TypeError, ValueError):
        raise InvalidRequest(f"{path} does not tell networks", hint="freeze the rows again") from None
