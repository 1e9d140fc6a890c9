"""Bad input, typed against the whole service: every refusal says what happened and what to type next."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.fixtures.command_line import assert_refused, mallorn
from tests.fixtures.service import JOB_SEC, Service, seldom
from tests.fixtures.waiting import wait_for

Type = Callable[..., CompletedProcess[str]]
LARGE_TARGET = '{"kind":"llvm","mcpu":"x86-64","num-cores":4096}'


@pytest.fixture
def typed(service: Service, tmp_path: Path) -> Type:
    """Types a command in an empty directory, as a user would whose MALLORN_URL is set."""
    return lambda *words: mallorn(*words, cwd=tmp_path, MALLORN_URL=service.client.connection.url)


def network(*nodes: Any, weight: Any = None, kind: int = TensorProto.FLOAT, **inputs: list[Any]) -> bytes:
    """A model with these nodes from its inputs to `y`."""
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", kind, ["rows", "columns"])],
        [weight] if weight is not None else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def dense(weight: Any, rows: int | str) -> bytes:
    product = helper.make_node("MatMul", ["x", "w"], ["h"])
    return network(product, helper.make_node("Relu", ["h"], ["y"]), weight=weight, x=[rows, 16])


def inside_weight() -> Any:
    import numpy as np

    return numpy_helper.from_array(np.ones((16, 8), "float32"), "w")


def without_outputs(data: bytes) -> bytes:
    model = ModelProto.FromString(data)
    model.graph.ClearField("output")
    return bytes(model.SerializeToString())


NOT_A_MODEL = {
    "no outputs": (lambda: without_outputs(dense(inside_weight(), 4)), "the model has no outputs"),
    "operator": (
        lambda: network(
            helper.make_node("StringNormalizer", ["x"], ["y"]), kind=TensorProto.STRING, x=[1, 4]
        ),
        "TVM cannot import these operators: StringNormalizer",
    ),
}


@pytest.mark.parametrize("name", NOT_A_MODEL)
def test_what_is_no_usable_model_fails_its_job_in_words(typed: Type, tmp_path: Path, name: str) -> None:
    content, said = NOT_A_MODEL[name]
    (tmp_path / "model.onnx").write_bytes(content())
    result = typed("tune", "model.onnx", "--trials", "2")
    assert_refused(result, "failed", said)
    assert not list(tmp_path.glob("model-tuned/*"))


def test_free_dimensions_are_named_with_how_to_bind_them(typed: Type, tmp_path: Path) -> None:
    (tmp_path / "free.onnx").write_bytes(dense(inside_weight(), "batch"))
    assert_refused(typed("tune", "free.onnx", "--trials", "2"), "--input-shape x:", "--dynamic batch=1..64")
    made_up = "-o", "measurer=simulated", "-o", "simulated.device_sec=0"
    bound = typed("tune", "free.onnx", "--trials", "2", "--input-shape", "x:4,16", *made_up, "--json")
    assert bound.returncode == 0, bound.stderr
    job = json.loads(bound.stdout)
    assert job["options"]["input_shapes"] == {"x": [4, 16]}
    assert job["report"]["schedule_count"] == job["report"]["workload_count"] > 0


@pytest.mark.long
def test_a_range_of_free_dimensions_is_one_job(typed: Type, tmp_path: Path) -> None:
    (tmp_path / "free.onnx").write_bytes(dense(inside_weight(), "batch"))
    done = typed("tune", "free.onnx", "--trials", "2", "--dynamic", "batch=3..4", "--out", "tuned", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)["report"]
    assert report["schedule_count"] == report["workload_count"] > 1
    assert [point["sizes"] for point in report["points"]] == [{"batch": 3}, {"batch": 4}]
    manifest = json.loads((tmp_path / "tuned" / "manifest.json").read_text())
    assert [rule["upto"] for rule in manifest["dynamic"]["rules"]][-1] == {"batch": 4}


REFUSED = {
    "empty": (("submit", "empty.onnx"), "'empty.onnx' is empty"),
    "unknown target key": (("submit", "MODEL", "--target", '{"kind":"llvm","cores":2}'), "'cores'"),
    "no num-cores": (("submit", "MODEL", "--target", '{"kind":"llvm"}'), "num-cores"),
    "unknown job": (("show", "nope"), "there is no job nope"),
    "unknown searcher": (("tune", "MODEL", "--search", "astrology"), "known: beam, bo, es, evolutionary, "),
    "unknown option": (("submit", "MODEL", "-o", "astrology=1"), "known: build_timeout_sec, contention, "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_asked_for_is_refused(typed: Type, networks: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.onnx").touch()
    words, said = REFUSED[name]
    model = str(networks / "tiny.onnx")
    assert_refused(typed(*(model if word == "MODEL" else word for word in words)), said)


def test_trials_below_none_are_a_usage_error(typed: Type, networks: Path) -> None:
    result = typed("tune", str(networks / "tiny.onnx"), "--trials", "-1")
    assert result.returncode == 2
    assert "--trials" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_job_without_a_device_says_what_it_waits_for_and_can_be_cancelled(
    typed: Type, service: Service, networks: Path
) -> None:
    job_id = typed("submit", str(networks / "tiny.onnx"), "--target", LARGE_TARGET).stdout.strip()
    job = service.client.job(job_id)
    why = "this machine cannot run it, the target has 4096 cores"
    wait_for(seldom(lambda: why in job.refresh().explanation), "its reason", JOB_SEC)
    shown = typed("show", job_id).stdout
    assert "x86-64" in shown
    assert "mallorn device" in shown
    assert typed("jobs", "cancel", job_id).returncode == 0
    assert job.refresh().state == "cancelled"
    assert_refused(typed("watch", job_id), "cancelled by its owner")


def test_a_misspelt_target_is_refused_before_a_service_is_started(tmp_path: Path, networks: Path) -> None:
    words = ("--target", "haswell", "--data", str(tmp_path / "data"))
    assert_refused(
        mallorn("tune", str(networks / "tiny.onnx"), *words), "unknown target", "nvidia/nvidia-h100"
    )
    assert not (tmp_path / "data").exists()
