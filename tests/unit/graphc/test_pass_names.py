"""A pass has one name: its class's. An export may err as much as its recipe's precision does."""

import re
from pathlib import Path

import pytest
from onnx import helper

from mallorn.core.values.graph_report import StoredRecipe
from mallorn.graphc.core.pass_registry import OWN_PASSES, resolve_pass
from mallorn.graphc.export.export_checks import (
    LARGEST_ERROR_ROUNDED,
    ManifestFile,
    Refused,
    check_error,
)
from mallorn.workers.tvm.network.graph_recipes import (
    BF16_GPU,
    FP16_GPU,
    precision_of,
)
from tests.fixtures.onnx_network import saved


@pytest.mark.parametrize("name", OWN_PASSES)
def test_the_registry_names_a_pass_as_its_class_is_named(name: str) -> None:
    made = resolve_pass(name)
    assert made.name == name == re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", made.__name__).lower()


@pytest.mark.parametrize(
    ("recipe", "error", "words"),
    [
        (FP16_GPU, 2e-2, "numbers over 65,504 become infinite: tune with --precision bf16 or float32"),
        (FP16_GPU, float("inf"), "numbers over 65,504 became infinite"),
        (BF16_GPU, 6e-2, "do not use this library$"),
    ],
)
def test_a_failed_check_in_float16_says_what_overflows(
    recipe: StoredRecipe, error: float, words: str, tmp_path: Path
) -> None:
    model = saved(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 3]}, {"y": [1, 3]})
    manifest: ManifestFile = {"recipe": {"before": recipe.model_dump()["before"]}}
    check_error(manifest, LARGEST_ERROR_ROUNDED[precision_of(recipe)] / 2, str(model), None)
    with pytest.raises(Refused, match=words):
        check_error(manifest, error, str(model), None)
