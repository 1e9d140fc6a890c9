"""Regions of a model in onnxruntime: taken where a library is right for them, left with a reason otherwise.

The libraries of these tests compute other numbers than their model, so that results show who computed them.
"""

import gc
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import mallorn_runtime.onnxruntime as mallorn
from mallorn_runtime import LibraryRefused, OptionRefused, empty
from tests.fixtures.command_line import ROOT
from tests.fixtures.onnx_network import onnx_network
from tests.fixtures.regions import export_region

node = helper.make_node
X = np.arange(32, dtype="float32").reshape(4, 8) - 9
W = np.linspace(1, 2, 8, dtype="float32")
INNER = [node("Abs", ["x"], ["a"]), node("Add", ["a", "w"], ["b"]), node("Sqrt", ["b"], ["c"])]
NODES = [*INNER, node("Neg", ["c"], ["y"])]
Warned = Callable[[], str]


@pytest.fixture(autouse=True)
def provider(provider_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider of this checkout: nothing else may be registered in this process before."""
    monkeypatch.setattr(mallorn, "LIBRARY", provider_library)


@pytest.fixture
def warned(capfd: pytest.CaptureFixture[str]) -> Warned:
    """What onnxruntime's logger has written since the last time, of what Mallorn says."""
    capfd.readouterr()
    return lambda: "\n".join(line for line in capfd.readouterr().err.splitlines() if "allorn" in line)


def save(folder: Path, nodes: Any = NODES, shape: Any = (4, 8), **weights: Any) -> Path:
    path = folder / "model.onnx"
    given = {"x": list(shape)}
    onnx.save(onnx_network(nodes, given, {"y": list(shape)}, **({"w": W} | weights)), path)
    return path


def alone(model: Path, **inputs: Any) -> list[Any]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def ours(source: Any, folder: Path, **options: Any) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(source, mallorn.session_options(folder, **options))


def marked(folder: Path, model: Path, **options: Any) -> Path:
    """A library for the whole model that adds a hundred."""
    from tvm import relax

    shapes = ({"x": (4, 8)}, {"y": (4, 8)})
    return export_region(
        folder / "model.so",
        *shapes,
        lambda x: relax.op.add(x, relax.const(np.float32(100))),
        {"model": model},
        **options,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a library for it that adds a hundred."""
    folder = tmp_path_factory.mktemp("whole")
    marked(folder / "tuned", save(folder))
    return folder / "model.onnx"


def test_a_whole_model_runs_in_its_library_and_nothing_is_said(whole: Path, warned: Warned) -> None:
    session = ours(whole, whole.parent / "tuned")
    aligned = empty((4, 8))
    aligned[...] = X
    for x in (X, np.asfortranarray(X), aligned):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], X + 100)
    assert session.get_providers() == [mallorn.PROVIDER, "CPUExecutionProvider"]
    assert warned() == ""


def test_a_region_runs_in_its_library_and_the_rest_in_onnxruntime(tmp_path: Path, warned: Warned) -> None:
    from tvm import relax

    model = save(tmp_path)
    part = tmp_path / "part.onnx"
    onnx.save(onnx_network([], {}, {}), part)
    export_region(
        tmp_path / "tuned" / "regions" / "one.so",
        {"a": (4, 8)},
        {"c": (4, 8)},
        lambda a: relax.op.add(a, relax.const(np.float32(1000))),
        {"model": part, "source": model},
    )
    np.testing.assert_array_equal(ours(model, tmp_path / "tuned").run(None, {"x": X})[0], -(np.abs(X) + 1000))
    assert warned() == ""


def test_two_regions_of_a_model_run_each_in_its_own(tmp_path: Path, warned: Warned) -> None:
    from tvm import relax

    chain = [
        node("Abs", ["x"], ["a"]),
        node("Sin", ["a"], ["b"]),
        node("Exp", ["b"], ["c"]),
        node("Cos", ["c"], ["y"]),
    ]
    model = save(tmp_path, chain)
    for given, made, number in (("x", "a", 1), ("b", "c", 10)):
        export_region(
            tmp_path / f"tuned/regions/{made}.so",
            {given: (4, 8)},
            {made: (4, 8)},
            lambda x, number=number: relax.op.add(x, relax.const(np.float32(number))),
            {"model": model},
        )
    expected = np.cos(np.sin(X + 1) + 10)
    np.testing.assert_allclose(
        ours(model, tmp_path / "tuned").run(None, {"x": X})[0], expected, rtol=1e-5, atol=1e-5
    )
    assert warned() == ""


def test_a_store_has_a_folder_for_each_model(tmp_path: Path, warned: Warned) -> None:
    for name, count in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        model = save(tmp_path / name, w=W * count)
        marked(tmp_path / "store" / name, model)
    for name in ("one", "two"):
        session = ours(tmp_path / name / "model.onnx", tmp_path / "store")
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 100)
    assert warned() == ""


@pytest.mark.parametrize("given", ["bytes", "path"])
def test_a_model_of_bytes_is_known_by_what_the_options_name(whole: Path, given: str, warned: Warned) -> None:
    content = whole.read_bytes()
    named = content if given == "bytes" else str(whole)
    np.testing.assert_array_equal(
        ours(content, whole.parent / "tuned", model=named).run(None, {"x": X})[0], X + 100
    )
    assert warned() == ""
    session = ours(content, whole.parent / "tuned")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], alone(whole, x=X)[0])
    assert "name its file or bytes, mallorn.session_options(..., model=...)" in warned()


def test_another_model_is_left_to_onnxruntime_and_said_once(
    whole: Path, tmp_path: Path, warned: Warned
) -> None:
    other = save(tmp_path, w=W + 1)
    session = ours(other, whole.parent / "tuned")
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], alone(other, x=X)[0])
    (words,) = warned().splitlines()
    assert "Mallorn leaves all of" in words
    assert "none of the 1 libraries" in words
    assert f"mallorn tune {other}" in words


def test_other_weights_in_a_file_are_another_model(tmp_path: Path, warned: Warned) -> None:
    network = onnx_network(NODES, {"x": [4, 8]}, {"y": [4, 8]}, w=W)
    model = tmp_path / "model.onnx"
    onnx.save(network, model, save_as_external_data=True, size_threshold=0, location="w.bin")
    marked(tmp_path / "tuned", model)
    np.testing.assert_array_equal(ours(model, tmp_path / "tuned").run(None, {"x": X})[0], X + 100)
    assert warned() == ""
    (tmp_path / "w.bin").write_bytes((W * 2).tobytes())
    np.testing.assert_allclose(ours(model, tmp_path / "tuned").run(None, {"x": X})[0], alone(model, x=X)[0])
    assert "compiled with other weights than" in warned()
    content = ours(model, tmp_path / "tuned", model=model.read_bytes())  # the path tells more
    np.testing.assert_allclose(content.run(None, {"x": X})[0], alone(model, x=X)[0])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cpu_features": ["magic"]}, "needs CPU features that this machine lacks: magic; tune or compile"),
        ({"target": {"kind": "cuda"}}, "is not for CPUs"),
        ({"format": 9}, "another format"),
        ({"inputs": [{"name": "x", "dtype": "float64", "shape": [4, 8]}]}, "the model's is float32 (4, 8)"),
        ({"inputs": [{"name": "x", "dtype": "float32", "shape": [4, 9]}]}, "its x is float32 (4, 9)"),
        ({"inputs": [{"name": "a", "dtype": "float32", "shape": [4, 8]}]}, None),
        ({"inputs": [{"name": "q", "dtype": "float32", "shape": [4, 8]}]}, "the region also reads x"),
        ({"outputs": [{"name": "q", "dtype": "float32", "shape": [4, 8]}]}, "does not compute its output q"),
        ({"inputs": 7}, "damaged"),
    ],
)
def test_a_library_that_does_not_fit_is_left_with_the_reason(
    whole: Path, tmp_path: Path, fields: dict[str, Any], words: str | None, warned: Warned
) -> None:
    marked(tmp_path / "tuned", whole, fields=fields)
    result = ours(whole, tmp_path / "tuned").run(None, {"x": X})[0]
    said = warned()
    if words is None:  # nodes between `a` and `y`
        np.testing.assert_array_equal(result, np.abs(X) + 100)
    else:
        np.testing.assert_allclose(result, alone(whole, x=X)[0])
        assert words in said
        assert said.count("Mallorn leaves all of") == 1


@pytest.mark.parametrize(("ours_us", "is_taken"), [(15.0, True), (15.5, False), (None, True)])
def test_a_library_that_was_slower_than_onnxruntime_is_left(
    whole: Path, tmp_path: Path, ours_us: float | None, is_taken: bool, warned: Warned
) -> None:
    marked(tmp_path / "tuned", whole)
    times = {"onnxruntime": {"median": 15.0}} | ({} if ours_us is None else {"tuned": {"median": ours_us}})
    (tmp_path / "tuned" / "report.json").write_text(json.dumps({"latency_us": times}))
    result = ours(whole, tmp_path / "tuned").run(None, {"x": X})[0]
    np.testing.assert_allclose(result, X + 100 if is_taken else alone(whole, x=X)[0])
    words = "onnxruntime was faster where it was tuned: 15 us against 15.5 us"
    assert (words in warned()) == (not is_taken)


@pytest.mark.parametrize("report", ["", "{", "[1]", '{"latency_us": {"tuned": null}}', '{"latency_us": 3}'])
def test_a_damaged_report_says_nothing_of_times(
    whole: Path, tmp_path: Path, report: str, warned: Warned
) -> None:
    marked(tmp_path / "tuned", whole)
    (tmp_path / "tuned" / "report.json").write_text(report)
    session = ours(whole, tmp_path / "tuned")
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 100)
    assert warned() == ""


def test_a_library_of_an_earlier_version_is_left(whole: Path, tmp_path: Path, warned: Warned) -> None:
    path = marked(tmp_path / "tuned", whole)
    path.write_bytes(path.read_bytes().replace(b'"weights"', b'"weightz"'))
    np.testing.assert_allclose(ours(whole, tmp_path / "tuned").run(None, {"x": X})[0], alone(whole, x=X)[0])
    assert "an earlier Mallorn compiled it" in warned()


def test_files_that_are_no_libraries_are_left(whole: Path, tmp_path: Path, warned: Warned) -> None:
    (tmp_path / "model.so").write_bytes(b"no library")
    np.testing.assert_allclose(ours(whole, tmp_path).run(None, {"x": X})[0], alone(whole, x=X)[0])
    assert "is no library of Mallorn" in warned()


@pytest.mark.parametrize(("read", "words"), [("a", ""), ("x", "only a subgraph reads its input x")])
def test_a_condition_is_taken_whole_unless_its_body_alone_reads_an_input(
    tmp_path: Path, read: str, words: str, warned: Warned
) -> None:
    ends = [helper.make_tensor_value_info(name, 1, [4, 8]) for name in ("yes", "no")]
    bodies = [
        helper.make_graph([node(operator, [read], [end.name])], end.name, [], [end])
        for operator, end in zip(("Neg", "Exp"), ends, strict=True)
    ]
    nodes = [
        node("Abs", ["w"] if read == "x" else ["x"], ["a"]),
        node("ReduceMax", ["a"], ["most"], keepdims=0),
        node("Cast", ["most"], ["chosen"], to=9),
        node("If", ["chosen"], ["y"], then_branch=bodies[0], else_branch=bodies[1]),
    ]
    network = onnx_network(nodes, {"x": [4, 8], "w": [8]} if words else {"x": [4, 8]}, {"y": [4, 8]})
    onnx.save(network, model := tmp_path / "model.onnx")
    from tvm import relax

    given = {"x": (4, 8), "w": (8,)} if words else {"x": (4, 8)}
    export_region(
        tmp_path / "tuned" / "model.so",
        given,
        {"y": (4, 8)},
        lambda x, *_: relax.op.add(x, relax.const(np.float32(100))),
        {"model": model},
    )
    inputs = {"x": X, "w": W} if words else {"x": X}
    expected = alone(model, **inputs)[0] if words else X + 100
    np.testing.assert_allclose(ours(model, tmp_path / "tuned").run(None, inputs)[0], expected, rtol=1e-6)
    said = warned()
    assert words in said
    assert bool(said) is bool(words)


def test_a_library_that_calls_what_the_runtime_lacks_is_left(
    whole: Path, tmp_path: Path, warned: Warned
) -> None:
    from tvm import relax

    export_region(
        tmp_path / "tuned" / "model.so",
        {"x": (4, 8)},
        {"y": (4, 8)},
        lambda x: relax.call_dps_packed("no.such.function", [x], relax.TensorType((4, 8), "float32")),
        {"model": whole},
    )
    session = ours(whole, tmp_path / "tuned")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], alone(whole, x=X)[0])
    assert "no.such.function" in warned()


def test_a_weight_that_callers_may_replace_is_compared_in_each_call(tmp_path: Path, warned: Warned) -> None:
    """Files before IR version 4 list weights as inputs, also those that no node reads."""
    spare = np.ones(3, "float32")
    network = onnx_network(NODES, {"x": [4, 8], "w": W, "spare": spare}, {"y": [4, 8]}, w=W, spare=spare)
    onnx.save(network, model := tmp_path / "model.onnx")
    marked(tmp_path / "tuned", model)
    session = ours(model, tmp_path / "tuned")
    for given in ({"x": X}, {"x": X, "w": W}, {"x": X, "w": W.copy()}):
        np.testing.assert_array_equal(session.run(None, given)[0], X + 100)
    assert warned() == ""
    given = {"x": X, "w": W + 3}
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, given)[0], alone(model, **given)[0], rtol=1e-6)
    assert warned().count("the weight w was replaced by the caller: onnxruntime computes this call") == 1
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 100)


def test_a_model_of_bytes_with_such_a_weight_is_left(tmp_path: Path, warned: Warned) -> None:
    network = onnx_network(NODES, {"x": [4, 8], "w": W}, {"y": [4, 8]}, w=W)
    onnx.save(network, model := tmp_path / "model.onnx")
    marked(tmp_path / "tuned", model)
    session = ours(model.read_bytes(), tmp_path / "tuned", model=model.read_bytes())
    np.testing.assert_allclose(session.run(None, {"x": X})[0], alone(model, x=X)[0], rtol=1e-6)
    assert "callers may set weights" in warned()


BRANCHES = [*INNER, node("Neg", ["c"], ["y"]), node("Exp", ["b"], ["z"])]
AROUND = [
    node("Abs", ["x"], ["a"]),
    node("Sin", ["a"], ["b"]),
    node("Add", ["a", "b"], ["c"]),
    node("Neg", ["c"], ["y"]),
]


@pytest.mark.parametrize(
    ("nodes", "results", "given", "made", "words"),
    [
        pytest.param(BRANCHES, "yz", "x", "c", "b, which it keeps inside, is read outside", id="not closed"),
        pytest.param(AROUND, "y", "xb", "ac", "its input depends on its output", id="around"),
    ],
)
def test_a_region_that_others_look_into_is_left(
    tmp_path: Path, nodes: Any, results: str, given: str, made: str, words: str, warned: Warned
) -> None:
    from tvm import relax

    network = onnx_network(nodes, {"x": [4, 8]}, {name: [4, 8] for name in results}, w=W)
    onnx.save(network, model := tmp_path / "model.onnx")
    one = relax.const(np.float32(1))
    export_region(
        tmp_path / "tuned" / "model.so",
        dict.fromkeys(given, (4, 8)),
        dict.fromkeys(made, (4, 8)),
        lambda *values: tuple(relax.op.add(value, one) for value in values[: len(made)]),
        {"model": model},
    )
    found, expected = ours(model, tmp_path / "tuned").run(None, {"x": X}), alone(model, x=X)
    for one_of_ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(one_of_ours, theirs, rtol=1e-6)
    assert words in warned()


def test_nodes_whose_results_nobody_reads_do_not_open_a_region(tmp_path: Path, warned: Warned) -> None:
    model = save(tmp_path, [*NODES, node("Exp", ["b"], ["e"]), node("Exp", ["e"], ["unread"])])
    marked(tmp_path / "tuned", model)
    np.testing.assert_array_equal(ours(model, tmp_path / "tuned").run(None, {"x": X})[0], X + 100)
    assert warned() == ""


def test_an_output_that_the_file_declares_with_another_size_is_taken(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    onnx.save(onnx_network(NODES, {"x": [4, 8]}, {"y": ["n", 5]}, w=W), model)
    marked(tmp_path / "tuned", model)
    np.testing.assert_array_equal(ours(model, tmp_path / "tuned").run(None, {"x": X})[0], X + 100)


def test_a_size_that_the_library_lacks_is_computed_by_onnxruntime(tmp_path: Path, warned: Warned) -> None:
    model = save(tmp_path, shape=("batch", 8))
    marked(tmp_path / "tuned", model)
    session = ours(model, tmp_path / "tuned")
    assert warned() == ""
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 100)
        for rows in (0, 1, 3, 7):
            x = np.resize(X, (rows, 8))
            np.testing.assert_allclose(session.run(None, {"x": x})[0], alone(model, x=x)[0], rtol=1e-6)
    (words,) = warned().splitlines()
    assert "takes float32 (4, 8): onnxruntime computes this call and others like it" in words


def test_a_size_that_the_options_fix_is_the_librarys_alone(tmp_path: Path, warned: Warned) -> None:
    model = save(tmp_path, shape=("batch", 8))
    marked(tmp_path / "tuned", model)
    for size, expected in ((4, X + 100), (2, alone(model, x=X[:2])[0])):
        options = mallorn.session_options(tmp_path / "tuned")
        options.add_free_dimension_override_by_name("batch", size)
        session = onnxruntime.InferenceSession(model, options)
        np.testing.assert_allclose(session.run(None, {"x": X[:size]})[0], expected, rtol=1e-6)
    assert "its x is float32 (4, 8), the model's is float32 (2, 8)" in warned()


@pytest.mark.parametrize("size", [4, 3])
def test_a_region_with_a_size_as_a_constant_is_taken_for_that_size_alone(
    tmp_path: Path, size: int, warned: Warned
) -> None:
    """The region divides by the number of rows, and its input and output do not have that size."""
    from tvm import relax

    nodes = [
        node("ReduceSum", ["x", "axis"], ["a"], keepdims=0),
        node("Shape", ["x"], ["shape"], end=1),
        node("Cast", ["shape"], ["rows"], to=1),
        node("Div", ["a", "rows"], ["b"]),
        node("Neg", ["b"], ["y"]),
    ]
    network = onnx_network(nodes, {"x": ["n", 8]}, {"y": [8]}, axis=np.array([0]))
    onnx.save(network, model := tmp_path / "model.onnx")
    export_region(
        tmp_path / "tuned" / "model.so",
        {"a": (8,)},
        {"b": (8,)},
        lambda a: relax.op.add(a, relax.const(np.float32(100))),
        {"model": model},
        fields={"source_shapes": {"x": [4, 8]}},
    )
    options = mallorn.session_options(tmp_path / "tuned")
    options.add_free_dimension_override_by_name("n", size)
    x = np.resize(X, (size, 8))
    found = onnxruntime.InferenceSession(model, options).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, -(x.sum(0) + 100) if size == 4 else alone(model, x=x)[0], rtol=1e-6)
    assert ("it was compiled for x of sizes (4, 8), the session has sizes (3, 8)" in warned()) is (size != 4)


def test_a_range_of_sizes_runs_in_the_library_and_others_in_onnxruntime(
    tmp_path: Path, warned: Warned
) -> None:
    from tvm import relax

    model = save(tmp_path, shape=("batch", 8))
    shape = ("batch", 8)
    export_region(
        tmp_path / "tuned" / "model.so",
        {"x": shape},
        {"y": shape},
        lambda x: relax.op.add(x, relax.const(np.float32(100))),
        {"model": model},
        ranges={"batch": (1, 5)},
    )
    session = ours(model, tmp_path / "tuned")
    for rows in (4, 1, 5):
        x = np.resize(X, (rows, 8))
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + 100)
    assert warned() == ""
    x = np.resize(X, (6, 8))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], alone(model, x=x)[0], rtol=1e-6)
    assert "batch is 6, and" in warned()


@pytest.mark.parametrize("has_file", [False, True])
def test_a_region_of_free_sizes_needs_its_own_onnx_file(
    tmp_path: Path, has_file: bool, warned: Warned
) -> None:
    from tvm import relax

    model = save(tmp_path, shape=("batch", 8))
    part = onnx_network(NODES[1:3], {"a": ["batch", 8]}, {"c": ["batch", 8]}, w=W)
    path = tmp_path / "tuned" / "regions" / "one.onnx"
    path.parent.mkdir(parents=True)
    onnx.save(part, path)
    export_region(
        path.with_suffix(".so"),
        {"a": (4, 8)},
        {"c": (4, 8)},
        lambda a: relax.op.add(a, relax.const(np.float32(1000))),
        {"model": path, "source": model},
    )
    if not has_file:
        path.unlink()
    session = ours(model, tmp_path / "tuned")
    said = warned()
    expected = -(np.abs(X) + 1000) if has_file else alone(model, x=X)[0]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-6)
    np.testing.assert_allclose(session.run(None, {"x": X[:3]})[0], alone(model, x=X[:3])[0], rtol=1e-6)
    assert ("add_free_dimension_override_by_name" in said) is not has_file


def test_an_input_that_no_node_reads_is_not_missed(tmp_path: Path, warned: Warned) -> None:
    """Nor by onnxruntime, which computes calls of other sizes."""
    from tvm import relax

    shapes: dict[str, Any] = {"x": ["batch", 8], "unread": ["count"]}
    onnx.save(onnx_network(NODES, shapes, {"y": ["batch", 8]}, w=W), model := tmp_path / "model.onnx")
    export_region(
        tmp_path / "tuned" / "model.so",
        {"x": (4, 8), "unread": (3,)},
        {"y": (4, 8)},
        lambda x, unread: relax.op.add(x, relax.op.sum(unread)),
        {"model": model},
    )
    inputs = {"x": X, "unread": np.ones(3, "float32")}
    session = ours(model, tmp_path / "tuned")
    np.testing.assert_array_equal(session.run(None, inputs)[0], X)
    assert warned() == ""
    fewer = {"x": X[:3], "unread": np.ones(5, "float32")}
    np.testing.assert_allclose(session.run(None, fewer)[0], alone(model, **fewer)[0], rtol=1e-6)
    assert "onnxruntime computes this call" in warned()


TYPES = ["float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool"]


def test_all_types_scalars_and_empty_tensors_go_in_and_out(tmp_path: Path, warned: Warned) -> None:
    from tvm import relax

    arrays = {
        f"x{i}": np.resize(np.asarray(i % 2, dtype), [(), (1, 0), (1,)][i % 3])
        for i, dtype in enumerate(TYPES)
    }
    results = {name.replace("x", "y"): array for name, array in arrays.items()}
    nodes = [node("Unsqueeze", [x, "axis"], [y]) for x, y in zip(arrays, results, strict=True)]
    grown = {name: array[None] for name, array in results.items()}
    onnx.save(onnx_network(nodes, arrays, grown, axis=np.array([0])), model := tmp_path / "model.onnx")
    kinds = {name: str(array.dtype) for name, array in (arrays | results).items()}
    export_region(
        tmp_path / "tuned" / "model.so",
        {name: array.shape for name, array in arrays.items()},
        {name: array.shape for name, array in grown.items()},
        lambda *values: tuple(relax.op.expand_dims(value, 0) for value in values),
        {"model": model},
        dtypes=kinds,
    )
    found = ours(model, tmp_path / "tuned").run(None, arrays)
    for array, expected in zip(found, grown.values(), strict=True):
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(array, expected)
    assert warned() == ""


def test_an_output_that_is_an_input_or_a_weight_is_the_callers_own(library: Path, warned: Warned) -> None:
    """The library of tests/unit/runtime/conftest.py: `y`, `same` and `weight`."""
    nodes = [
        node("Add", ["x", "x"], ["d"]),
        node("Add", ["d", "b"], ["y"]),
        node("Identity", ["b"], ["same"]),
        node("Identity", ["w"], ["weight"]),
    ]
    model = onnx_network(
        nodes,
        {"x": [4, 8], "b": [8]},
        {"y": [4, 8], "same": [8], "weight": [8]},
        w=np.arange(8, dtype="float32"),
    )
    folder = library.parent / "tuned"
    folder.mkdir()
    content = model.SerializeToString()
    (folder / "model.onnx").write_bytes(content)
    digest = sha256(content).hexdigest().encode()
    (folder / "model.so").write_bytes(
        re.sub(rb'"model":"[0-9a-f]{64}"', b'"model":"' + digest + b'"', library.read_bytes())
    )
    session = ours(folder / "model.onnx", folder)
    b = np.ones(8, "float32")
    for _ in range(3):
        y, same, weight = session.run(None, {"x": X, "b": b})
        np.testing.assert_array_equal(y, 2 * X + 1)
        np.testing.assert_array_equal(same, np.ones(8))
        np.testing.assert_array_equal(weight, np.arange(8))
        same[...] = weight[...] = -1
    np.testing.assert_array_equal(b, np.ones(8))
    assert warned() == ""


def test_ten_threads_and_several_sessions_call_at_once(whole: Path) -> None:
    sessions = [ours(whole, whole.parent / "tuned") for _ in range(3)]
    wrong: list[int] = []

    def call(number: int) -> None:
        for turn in range(200):
            x = X + number + turn
            (y,) = sessions[turn % 3].run(None, {"x": x})
            if not np.array_equal(y, x + 100):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    sessions.clear()
    gc.collect()
    assert np.array_equal(ours(whole, whole.parent / "tuned").run(None, {"x": X})[0], X + 100)


def test_a_library_that_was_replaced_is_loaded_anew(tmp_path: Path) -> None:
    from tvm import relax

    model = save(tmp_path)
    sessions = []
    for number in (1, 2, 3):
        path = tmp_path / "tuned" / "model.so"
        path.unlink(missing_ok=True)
        export_region(
            path,
            {"x": (4, 8)},
            {"y": (4, 8)},
            lambda x, number=number: relax.op.add(x, relax.const(np.float32(number))),
            {"model": model},
        )
        sessions.append(ours(model, tmp_path / "tuned"))
    for number, session in enumerate(sessions, 1):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + number)


@pytest.mark.parametrize("order", ["after", "before"])
def test_the_provider_has_as_many_threads_as_the_session(whole: Path, order: str, warned: Warned) -> None:
    if order == "after":
        options = mallorn.session_options(whole.parent / "tuned")
        options.intra_op_num_threads = 1
    else:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        assert mallorn.session_options(whole.parent / "tuned", options=options) is options
    assert options.intra_op_num_threads == 1
    assert options.get_session_config_entry(f"{mallorn.ENTRY}threads") == "1"
    session = onnxruntime.InferenceSession(whole, options)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 100)
    warned()
    options = mallorn.session_options(whole.parent / "tuned")
    options.intra_op_num_threads = 2
    other = onnxruntime.InferenceSession(whole, options)
    np.testing.assert_array_equal(other.run(None, {"x": X})[0], X + 100)
    assert "runs on 1 threads, as another session of this process has set them" in warned()


def test_a_folder_without_libraries_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(OptionRefused, match="mallorn tune MODEL --out"):
            mallorn.session_options(folder)


def run_without_provider(script: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path[:0] = {[*map(str, paths), str(ROOT / 'runtime')]!r}\n{script}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_a_runtime_that_was_built_without_a_compiler_says_so(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mallorn, "LIBRARY", whole)
    monkeypatch.setattr(onnxruntime, "get_ep_devices", list)
    monkeypatch.setattr(mallorn, "LIBRARY", whole.parent / "none.so")
    with pytest.raises(LibraryRefused, match="built without a C"):
        mallorn.session_options(whole.parent / "tuned")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            "__version__ = '1.22.1'",
            "needs onnxruntime 1.23 or newer, and 1.22.1 is installed: pip install -U",
        ),
        ("raise ModuleNotFoundError('onnxruntime')", "pip install 'onnxruntime>=1.23'"),
    ],
)
def test_onnxruntime_that_is_missing_or_too_old_is_named(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "onnxruntime.py").write_text(content)
    done = run_without_provider("import mallorn_runtime.onnxruntime", tmp_path)
    assert done.returncode == 1
    assert words in done.stderr
