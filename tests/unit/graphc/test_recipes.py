"""Recipes are plain data that name stock TVM passes, and those of the exported scripts."""

import subprocess
import sys
from typing import Any

import pytest
import tvm
from tvm import relax

from mallorn.core.errors import InvalidRequest
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.graphc.core.pass_runner import run_passes as run_steps
from mallorn.workers.tvm.network.graph_recipes import (
    BF16,
    BF16_GPU,
    DIRECT,
    DIRECT_BF16,
    FP16_CPU,
    FP16_GPU,
    PLAIN,
    PLAIN_GPU,
    TF32_GPU,
    TUNED,
    TUNED_GPU,
    is_reduced_form_of,
    precision_of,
    recipe_for,
    recipe_steps,
    with_skipped_passes,
)
from tests.unit.graphc.networks import HASWELL, NHWC, network, weights

CPU = parse_target({"kind": "llvm", "num-cores": 2})
ARM = Target('{"kind":"llvm","mcpu":"neoverse-v1","mtriple":"aarch64-linux-gnu","num-cores":2}')
GPU = parse_target("nvidia/nvidia-a100")
TURING = parse_target({"kind": "cuda", "arch": "sm_75"})
ALL = (PLAIN, PLAIN_GPU, TUNED, TUNED_GPU, FP16_CPU, FP16_GPU, BF16_GPU, TF32_GPU, DIRECT, BF16, DIRECT_BF16)


@pytest.mark.parametrize("recipe", ALL, ids=lambda recipe: recipe.name)
def test_survives_json(recipe: StoredRecipe) -> None:
    assert StoredRecipe.model_validate_json(recipe.model_dump_json()) == recipe
    named = {"name": recipe.name, "version": recipe.version, **recipe_steps(recipe)}
    assert StoredRecipe.model_validate(named) == recipe


@pytest.mark.parametrize("recipe", ALL, ids=lambda recipe: recipe.name)
def test_every_step_is_a_graph_pass(recipe: StoredRecipe) -> None:
    from tvm.ir import transform

    from mallorn.graphc.core.graph_pass import ReportingPass
    from mallorn.graphc.core.pass_registry import make_pass

    plain = recipe.model_dump()
    made = [make_pass(step) for step in plain["before"] + plain["after"]]
    assert all(isinstance(one, ReportingPass | transform.Pass) for one in made)


@pytest.mark.parametrize(
    ("name", "target", "expected"),
    [
        ("tuned", CPU, TUNED),
        ("tuned", GPU, TUNED_GPU),
        ("direct", CPU, DIRECT),
        ("direct", GPU, TUNED_GPU),
        ("plain", CPU, PLAIN),
        ("plain", GPU, PLAIN_GPU),
    ],
)
def test_the_target_decides_the_form(name: str, target: Target, expected: StoredRecipe) -> None:
    assert recipe_for(name, target) is expected


@pytest.mark.parametrize(
    ("name", "target", "precision", "expected"),
    [
        ("tuned", CPU, "bf16", BF16),
        ("direct", CPU, "bf16", DIRECT_BF16),
        ("tuned", GPU, "bf16", BF16_GPU),
        ("direct", GPU, "fp16", FP16_GPU),
        ("tuned", ARM, "fp16", FP16_CPU),
        ("tuned", TURING, "fp16", FP16_GPU),
        ("direct", GPU, "tf32", TF32_GPU),
    ],
)
def test_a_precision_is_a_recipe_of_its_own(
    name: str, target: Target, precision: str, expected: StoredRecipe
) -> None:
    recipe = recipe_for(name, target, precision)
    assert recipe is expected
    assert precision_of(recipe) == precision


@pytest.mark.parametrize(
    ("name", "target", "precision", "reason"),
    [
        ("plain", CPU, "bf16", "the plain recipe computes in float32"),
        ("plain", GPU, "fp16", "the plain recipe computes in float32"),
        ("tuned", CPU, "fp16", "the target's CPU has no products in fp16"),
        ("tuned", CPU, "tf32", "the target's CPU has no products in tf32"),
        ("tuned", TURING, "tf32", "the tensor cores of sm_75 do not multiply tfloat32"),
        ("tuned", TURING, "bf16", "the tensor cores of sm_75 do not multiply bfloat16"),
    ],
)
def test_what_cannot_compute_in_16_bits_says_so(
    name: str, target: Target, precision: str, reason: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        recipe_for(name, target, precision)
    assert refusal.value.message == reason


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidRequest) as caught:
        recipe_for("fancy", CPU)
    assert caught.value.hint == "known: direct, plain, tuned"


@pytest.mark.parametrize("value", [{}, {"name": "x"}])
def test_what_is_no_recipe_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="not a graph recipe"):
        recipe_steps(StoredRecipe.model_validate(value))


def test_naming_a_recipe_loads_no_tvm() -> None:
    program = "import sys, mallorn.workers.tvm.network.graph_recipes; sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("attrs", "lanes", "registers"),
    [
        ({"kind": "llvm", "mcpu": "znver4", "num-cores": 2}, 16, 32),
        ({"kind": "llvm", "mcpu": "haswell", "num-cores": 2}, 8, 16),
        ({"kind": "llvm", "mcpu": "x86-64", "num-cores": 2}, 4, 16),
        ({"kind": "llvm", "mcpu": "haswell", "num-cores": 2, "vector-width": 128}, 4, 16),
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 2}, 4, 32),
    ],
    ids=["AVX-512", "AVX2", "SSE", "as told", "NEON"],
)
def test_passes_get_the_vectors_of_the_target(attrs: dict[str, object], lanes: int, registers: int) -> None:
    from mallorn.graphc.core import vector_lanes
    from mallorn.graphc.core.pass_registry import make_pass
    from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target

    with as_tvm_target(attrs):
        assert make_pass({"call": "vector_lanes", "args": []}) == lanes
        assert vector_lanes.registers() == registers


def test_a_pass_that_a_recipe_leaves_out_does_not_run_and_the_report_says_why() -> None:
    reason = "the whole model does not compile with it"
    stored = with_skipped_passes(TUNED, {"pad_conv_to_vectors": reason})
    steps = recipe_steps(stored)["before"]
    narrow = network(lambda _, x: relax.op.nn.conv2d(x, weights(3, 3, 8, 12), **NHWC), (1, 8, 8, 8))
    _, reports = run_steps(narrow, steps, tvm.target.Target(HASWELL))
    assert [report.name for report in reports if report.skipped == reason] == ["pad_conv_to_vectors"]


def test_a_form_of_a_recipe_leaves_out_what_the_recipe_does() -> None:
    whole = TUNED
    without = with_skipped_passes(whole, {"pad_conv_to_vectors": "it raised"})
    assert is_reduced_form_of(whole, whole)
    assert is_reduced_form_of(without, whole)
    assert not is_reduced_form_of(whole, without)
    assert not is_reduced_form_of(DIRECT, whole)


def test_a_pass_that_gives_up_on_a_network_is_passed_over_and_says_so() -> None:
    """TVM's ConvertLayout cannot stack five dimensions."""

    def stacked(emit: Any, x: Any) -> Any:
        image = emit(relax.op.nn.conv2d(x, weights(4, 4, 3, 3), padding=1))
        return relax.op.stack([image, emit(relax.op.nn.relu(image))], 0)

    steps = TUNED.model_dump()["before"]
    mod, reports = run_steps(network(stacked, (1, 4, 8, 8)), steps, tvm.target.Target(HASWELL))
    (skipped,) = [report.name for report in reports if report.skipped]
    assert skipped == "relax.transform.ConvertLayout"
    assert any("conv2d" in var.name_hint for var in mod.get_global_vars())
