"""`mallorn compile --check`: how far a tuned model's answers may be from the untuned one's."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from onnx.helper import make_graph, make_model, make_node

from mallorn.cli.compile_and_bench import WrongNumbers, check_library_outputs, copy_from_sandbox, time_engines
from mallorn.core.targets import parse_target
from mallorn.core.values.graph_report import StoredRecipe, TensorSpec
from mallorn.workers.interfaces.model_compiler import Untuned
from mallorn.workers.interfaces.whole_model_engine import LoadedEngine, NodeDifference
from mallorn.workers.sandbox.untrusted_files import TamperedFile
from mallorn.workers.tvm.network.graph_recipes import BF16, DIRECT_BF16, PLAIN, TUNED
from mallorn.workers.whole_model.compiled_model import WholeModel
from tests.fixtures.made_up_engines import Told
from tests.fixtures.workshop import MadeUpGraphs

pytestmark = pytest.mark.usefixtures("engines_told")


def model(recipe: StoredRecipe, error: float, folder: Path) -> WholeModel:
    """A model whose answers are so far from the untuned one's."""
    answers = {"compile_default": Untuned(1, 0.0), "make_inputs": ["x"], "compare_models": error}
    answers |= {"find_constant_outputs": []}
    return WholeModel(
        path=Path("m.onnx"),
        target=parse_target({"kind": "llvm", "num-cores": 2}),
        recipe=recipe,
        input_shapes={},
        input_ranges={},
        graphs=MadeUpGraphs(answers),
        folder=folder,
        threads=2,
    )


@pytest.mark.parametrize(
    ("recipe", "error"), [(TUNED, 1e-5), (PLAIN, 1e-5), (BF16, 1e-2), (DIRECT_BF16, 1e-2)]
)
def test_what_its_precision_explains_is_told_and_allowed(
    recipe: StoredRecipe, error: float, tmp_path: Path
) -> None:
    assert check_library_outputs(model(recipe, error, tmp_path), tmp_path / "tuned.so").error == error


@pytest.mark.parametrize(("recipe", "error"), [(TUNED, 1e-2), (BF16, 0.2), (BF16, float("nan"))])
def test_what_its_precision_does_not_explain_is_refused(
    recipe: StoredRecipe, error: float, tmp_path: Path
) -> None:
    with pytest.raises(WrongNumbers, match="the relative error"):
        check_library_outputs(model(recipe, error, tmp_path), tmp_path / "tuned.so")


def of_one(operator: str) -> bytes:
    """A file of one node."""
    graph = make_graph([make_node(operator, ["x"], ["y"])], "one", [], [])
    return make_model(graph).SerializeToString()


def test_weights_of_few_bits_may_cost_what_their_inputs_lose(tmp_path: Path) -> None:
    narrow = replace(model(TUNED, 1e-2, tmp_path), path=tmp_path / "narrow.onnx")
    narrow.path.write_bytes(of_one("MatMulNBits"))
    assert check_library_outputs(narrow, tmp_path / "tuned.so").error == 1e-2
    with pytest.raises(WrongNumbers):
        check_library_outputs(
            replace(narrow, graphs=model(TUNED, 0.1, tmp_path).graphs), tmp_path / "tuned.so"
        )


@pytest.mark.parametrize(("own_error", "allowed"), [(0.02, True), (0.001, False)])
def test_a_quantised_model_may_be_twice_as_far_off_as_onnxruntime(
    engines_told: Told, own_error: float, allowed: bool, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    engines_told["onnxruntime", "load_onnxruntime"] = LoadedEngine("onnxruntime", "1", 2, own_error)
    quantised = replace(model(TUNED, 5e-2, tmp_path), path=tmp_path / "m.onnx")
    quantised.path.write_bytes(of_one("QuantizeLinear"))
    with nullcontext() if allowed else pytest.raises(WrongNumbers):
        check_library_outputs(quantised, tmp_path / "tuned.so")


def test_a_quantised_model_may_round_the_other_way(tmp_path: Path) -> None:
    quantised, plain = (
        replace(model(TUNED, 5e-2, tmp_path), path=tmp_path / f"{kind}.onnx")
        for kind in ("QuantizeLinear", "Relu")
    )
    for each in (quantised, plain):
        each.path.write_bytes(of_one(each.path.stem))
    assert check_library_outputs(quantised, tmp_path / "tuned.so").error == 5e-2
    with pytest.raises(WrongNumbers):
        check_library_outputs(plain, tmp_path / "tuned.so")


def test_a_link_in_place_of_the_library_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "tuned.so").symlink_to(tmp_path / "secret")
    with pytest.raises(TamperedFile):
        copy_from_sandbox(tmp_path / "tuned.so", tmp_path / "model.so")
    assert not (tmp_path / "model.so").exists()


def disagree(expected_npz: str, **_params: object) -> float:
    return 0.5 if "onnxruntime" in expected_npz else 0.0


def test_a_wrong_import_is_named_with_its_node(
    engines_told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)

    def bisect_import(case_npz: str, **_params: object) -> NodeDifference:
        Path(case_npz).write_bytes(b"the node and its inputs")
        return NodeDifference("Resize_12", "Resize", 5.8e-3, 1e-4)

    engines_told["bisection", "bisect_import"] = bisect_import
    (folder := tmp_path / "graphs").mkdir()
    wrong = model(TUNED, 0.0, folder)
    wrong.graphs.answers["compare_models"] = disagree  # type: ignore[attr-defined]
    with pytest.raises(WrongNumbers, match="the import of node 'Resize_12'") as refusal:
        check_library_outputs(wrong, tmp_path / "tuned.so")
    assert "wrong-node.npz" in refusal.value.hint
    with pytest.raises(WrongNumbers, match="the import of node 'Resize_12'"):  # and it is not timed
        time_engines(wrong, ("tuned", "onnxruntime"), {"tuned": tmp_path / "tuned.so"})
    assert (tmp_path / "wrong-node.npz").read_bytes() == b"the node and its inputs"


def test_an_output_that_does_not_vary_is_not_checked(tmp_path: Path) -> None:
    constant = model(TUNED, 1e-7, tmp_path)
    constant.graphs.answers["find_constant_outputs"] = [0]  # type: ignore[attr-defined]
    result = check_library_outputs(constant, tmp_path / "tuned.so")
    [_, line] = result.describe([TensorSpec(name="mask", dtype="float32", shape=[1])])
    assert "'mask' was not checked" in line
    assert "--inputs samples.npz" in line
