"""A decoder whose caches grow: one library for steps and prompts at every length, exported for stock TVM."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
import pytest
import tvm
from tvm import relax

from mallorn.core.errors import InvalidModel
from mallorn.workers.interfaces.model_compiler import Tuned
from mallorn.workers.tvm.compile.compile_model import compile_model
from mallorn.workers.tvm.network import extract_tasks_of_range as choose_sizes
from mallorn.workers.tvm.network.extract_tasks_of_range import extract_range
from tests.fixtures.decoder import WORDS, write_decoder
from tests.integration.tvm_graph.conftest import first_trace
from tests.integration.tvm_graph.in_range import InRange
from tests.integration.tvm_graph.test_apply_script import run_script

GENERATE: Final = Path(__file__).parents[3] / "examples" / "decoder" / "generate.py"
BOUNDS: Final = {"sequence": [1, 12], "past": [0, 40]}


class Decoder(InRange):
    bounds = BOUNDS

    @cached_property
    def path(self) -> str:
        return str(write_decoder(self.folder / "decoder.onnx"))

    @cached_property
    def records(self) -> list[Tuned]:
        """Of a table that is read at one place TVM drops an axis; a finish would find it wrong."""
        sound = [task for task in self.tasks if "take" not in task.name]
        return [Tuned(task.tir, first_trace(task.tir, self.target), [1e-3]) for task in sound]

    @cached_property
    def library(self) -> str:
        path = str(self.folder / "decoder.so")
        compile_model(self.path, None, self.target, self.recipe, path, {}, self.dynamic)
        return path

    def inputs(self, rows: int, past: int, seed: int = 0) -> dict[str, Any]:
        rng, shapes = np.random.default_rng(seed), self.dynamic.shapes({"sequence": rows, "past": past})
        given: dict[str, Any] = {
            name: rng.standard_normal(shape, "float32") for name, shape in shapes.items()
        }
        given["input_ids"] = rng.integers(0, WORDS, (1, rows))
        given["attention_mask"] = np.ones((1, past + rows), "int64")
        given["position_ids"] = np.arange(past, past + rows)[None]
        return given


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Decoder]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose_sizes, "MOST_POINTS", 3)
        yield Decoder("decoder", "tuned", tmp_path_factory.mktemp("decoder"))


def test_a_mask_of_its_own_name_is_as_long_as_the_cache_and_what_comes_behind(decoder: Decoder) -> None:
    assert decoder.dynamic.inputs["attention_mask"] == [1, "past + sequence"]
    assert decoder.graph.inputs[1].shape == [1, 52]
    assert [spec.shape for spec in decoder.graph.outputs] == [[1, 12, WORDS], *[[1, 2, 52, 16]] * 2]


def test_one_step_is_a_point_and_the_caches_length_is_none(decoder: Decoder) -> None:
    assert decoder.dynamic.points[0] == {"sequence": 1}
    assert decoder.dynamic.growing_dimensions == ["past"]
    assert decoder.dynamic.padded == ["sequence"]
    assert decoder.dynamic.divided == []


def test_what_depends_on_the_caches_length_is_no_task(decoder: Decoder) -> None:
    assert not [task.name for task in decoder.tasks if "attention" in task.name or "concat" in task.name]
    assert [task.name for task in decoder.tasks if "matmul" in task.name]


def test_one_library_computes_steps_and_prompts_at_every_length(decoder: Decoder) -> None:
    machine = relax.VirtualMachine(tvm.runtime.load_module(decoder.library), tvm.cpu())
    session = onnxruntime.InferenceSession(decoder.path)
    for past in (0, 1, 2, 11, 17, 40):
        for rows in (1, 2, 12):
            given = decoder.inputs(rows, past, seed=past)
            ours = machine["main"](*map(tvm.runtime.tensor, given.values()))
            for found, expected in zip(ours, session.run(None, given), strict=True):
                np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-4)


def test_the_exported_script_makes_it_with_stock_tvm(decoder: Decoder) -> None:
    report = run_script(decoder.schedules, decoder.path, "--check", "--allow-missing")
    assert report["workloads_found"] == len(decoder.records)
    assert report["workloads"] == len(decoder.tasks)
    assert report["relative_error"] < 1e-4


def test_the_example_generates_the_tokens_that_onnxruntime_does(decoder: Decoder) -> None:
    """The prompt is longer than what one call takes."""
    prompt, count = [int(n) for n in np.random.default_rng(3).integers(0, WORDS, 15)], 20
    manifest = str(Path(decoder.schedules, "manifest.json"))
    given = ["--prompt", ",".join(map(str, prompt)), "--tokens", str(count)]
    done = subprocess.run(
        [sys.executable, str(GENERATE), decoder.library, manifest, *given],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tokens, speed = done.stdout.splitlines()
    assert [int(token) for token in tokens.split(",")] == _generated(decoder.path, prompt, count)
    assert "ms to the first, then" in speed


def _generated(path: str, prompt: list[int], count: int) -> list[int]:
    session = onnxruntime.InferenceSession(path)
    caches: list[Any] = [np.zeros((1, 2, 0, 16), "float32")] * 2
    tokens, found = prompt, list[int]()
    for _ in range(count):
        past = caches[0].shape[2]
        whole = past + len(tokens)
        given = [np.array([tokens]), np.ones((1, whole), "int64"), np.arange(past, whole)[None], *caches]
        names = [each.name for each in session.get_inputs()]
        logits, *caches = session.run(None, dict(zip(names, given, strict=True)))
        tokens = [int(logits[0, -1].argmax())]
        found += tokens
    return found


def test_one_dimension_may_grow(decoder: Decoder) -> None:
    with pytest.raises(InvalidModel, match="only one dimension may have a range from 0"):
        extract_range(decoder.path, decoder.target, decoder.recipe, {}, {"sequence": [0, 4], "past": [0, 40]})
