"""The table of the latency benchmark, from made-up cells."""

import sys
from typing import Any

import pytest

from benchmarks.latency import python_of
from benchmarks.latency_report import lines, summarise, verdicts


def cell(model: str, **medians: float) -> dict[str, Any]:
    return {
        "model": model,
        "threads": 2,
        "latency_us": {name: {"median": median} for name, median in medians.items()},
        "left_out": {},
    }


CELLS = [
    cell("mlp", t0=400.0, t1000=100.0, onnxruntime=200.0, openvino=125.0),
    cell("resnet18", t0=900.0, t1000=360.0, onnxruntime=300.0),
]


def test_the_headline_is_the_last_label_beside_the_best_rival_of_each_model() -> None:
    assert summarise(CELLS, ["t0", "t1000"])["headline"] == pytest.approx((0.8 * 1.2) ** 0.5)


def test_ratios_are_to_onnxruntime_of_the_same_run() -> None:
    first, second = summarise(CELLS, ["t0", "t1000"])["cells"]
    assert first["over_onnxruntime"] == {"t0": 2.0, "t1000": 0.5, "onnxruntime": 1.0, "openvino": 0.625}
    assert second["over_onnxruntime"]["t0"] == 3.0


def test_an_engine_that_could_not_hold_a_model_leaves_an_empty_field_and_is_named() -> None:
    left_out = [CELLS[0], {**CELLS[1], "left_out": {"openvino": "openvino: no such operator\nmore"}}]
    found = lines(summarise(left_out, ["t0", "t1000"]))
    assert found[0] == "| model, threads | t0 | t1000 | onnxruntime | openvino |"
    assert found[3] == "| resnet18, 2 | 0.900 ms (3.00) | 0.360 ms (1.20) | 0.300 ms (1.00) |  |"
    assert "resnet18, 2 threads, without openvino: openvino: no such operator" in found


@pytest.mark.parametrize(("now_us", "word"), [(104.0, "as before"), (115.0, "slower"), (85.0, "faster")])
def test_a_verdict_allows_for_the_noise_between_two_sittings(now_us: float, word: str) -> None:
    stored = summarise([cell("mlp", t1000=100.0, onnxruntime=200.0)], ["t1000"])
    found = summarise([cell("mlp", now=now_us, onnxruntime=200.0)], ["now"])
    (verdict,) = verdicts(found, stored)
    assert verdict == f"mlp, 2 threads: {now_us / 200:.2f} of onnxruntime's latency, 0.50 stored: {word}"


def test_a_model_that_was_never_timed_has_nothing_to_compare_with() -> None:
    stored = summarise([cell("mlp", t=100.0, onnxruntime=200.0)], ["t"])
    found = summarise([cell("resnet18", t=100.0, onnxruntime=200.0)], ["t"])
    assert verdicts(found, stored)[0].endswith("nothing is stored to compare with")


def test_a_rival_may_have_an_interpreter_of_its_own() -> None:
    pythons = ["/all/python", "zentorch_cpu=/own/python"]
    assert python_of("zentorch_cpu", pythons) == "/own/python"
    assert python_of("openvino_cpu", pythons) == "/all/python"
    assert python_of("openvino_cpu", ["zentorch_cpu=/own/python"]) == sys.executable
