"""The models of time of GPU kernels, beside the kernels that an H200 has timed."""

import json
from pathlib import Path

from benchmarks.gpu_model import tables

PUBLISHED = Path(__file__).parents[4] / "docs/results/gpu/model.json"


def test_the_models_rank_the_recorded_kernels_as_the_published_figures_say() -> None:
    published = json.loads(PUBLISHED.read_text())
    assert tables(published["recording"]) == {name: published[name] for name in ("models", "tensor cores")}
