"""LSTM, GRU and RNN as ONNX has them: imported, in every form that frameworks export, with ONNX's numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from mallorn.core.errors import InvalidModel
from mallorn.graphc.rnn.scan_function import Scan
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from tests.fixtures.onnx_network import saved
from tests.unit.graphc.networks import HASWELL, run, run_onnxruntime

STEPS, BATCH, INPUTS, HIDDEN = 5, 4, 6, 20
WIDE = '{"kind":"llvm","mcpu":"znver4","num-cores":2}'
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "LSTM": ("LSTM", {}),
    "GRU that resets late": ("GRU", {"linear_before_reset": 1}),
    "GRU that resets early": ("GRU", {}),
    "RNN": ("RNN", {}),
    "rectified RNN": ("RNN", {"activations": ["Relu"]}),
    "LSTM with hard gates": ("LSTM", {"activations": ["HardSigmoid", "Tanh", "Softsign"]}),
    "GRU with hard gates": ("GRU", {"activations": ["HardSigmoid", "LeakyRelu"]}),
}


def model(
    folder: Path,
    kind: str,
    *,
    batch: int = BATCH,
    hidden: int = HIDDEN,
    state: bool = True,
    bias: bool = True,
    lengths: bool = False,
    peepholes: bool = False,
    **attrs: Any,
) -> str:
    """A network of one layer; sequences have an input for their lengths if `lengths`."""
    rng, count = np.random.default_rng(3), 2 if attrs.get("direction") == "bidirectional" else 1
    gates = GATES[kind]
    if count == 2 and "activations" in attrs:
        attrs["activations"] = attrs["activations"] * 2
    shapes: dict[str, tuple[int, ...]] = {
        "w": (count, gates * hidden, INPUTS),
        "r": (count, gates * hidden, hidden),
    }
    shapes |= {"b": (count, 2 * gates * hidden)} if bias else {}
    shapes |= {"p": (count, 3 * hidden)} if peepholes else {}
    states = ["h", "c"][: 2 if kind == "LSTM" else 1] if state else []
    shapes |= dict.fromkeys(states, (count, batch, hidden))
    weights = {name: rng.uniform(-0.5, 0.5, shape).astype("float32") for name, shape in shapes.items()}
    given = ["x", "w", "r", "b" if bias else "", "n" if lengths else "", *states]
    given += [*["" for _ in range(7 - len(given))], "p"] if peepholes else []
    results = ["y", "yh", *(["yc"] if kind == "LSTM" else [])]
    node = helper.make_node(kind, given, results, hidden_size=hidden, **attrs)
    sizes = {"y": [STEPS, count, batch, hidden]} | {name: [count, batch, hidden] for name in results[1:]}
    inputs: dict[str, Any] = {"x": [STEPS, batch, INPUTS]}
    inputs |= {"n": np.zeros(batch, "int32")} if lengths else {}
    return saved(folder / "layer.onnx", [node], inputs, sizes, **weights)


def same(path: str, batch: int = BATCH, target: Any = None, lengths: Any = None) -> None:
    x = np.random.default_rng(5).uniform(-1, 1, (STEPS, batch, INPUTS)).astype("float32")
    inputs = [x] if lengths is None else [x, np.array(lengths, "int32")]
    for result, wanted in zip(
        run(load_network(path, target=target).mod, *inputs), run_onnxruntime(path, *inputs), strict=True
    ):
        np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize("form", FORMS)
def test_the_numbers_are_those_of_onnxruntime(tmp_path: Path, form: str, direction: str) -> None:
    kind, attrs = FORMS[form]
    same(model(tmp_path, kind, direction=direction, **attrs))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("form", FORMS)
def test_sequences_end_at_lengths_that_are_an_input(tmp_path: Path, form: str, direction: str) -> None:
    kind, attrs = FORMS[form]
    same(model(tmp_path, kind, direction=direction, lengths=True, **attrs), lengths=[5, 1, 3, 4])


def test_sequences_end_at_constant_lengths(tmp_path: Path) -> None:
    network = onnx.load(model(tmp_path, "GRU", lengths=True))
    network.graph.initializer.append(numpy_helper.from_array(np.array([2, 5, 1, 5], "int32"), "n"))
    del network.graph.input[1]
    onnx.save(network, path := tmp_path / "constant.onnx")
    same(str(path))


@pytest.mark.parametrize("lengths", [None, [5, 1, 3, 4]])
def test_gates_see_the_cell_through_peepholes(tmp_path: Path, lengths: Any) -> None:
    attrs = {"direction": "bidirectional", "peepholes": True, "lengths": lengths is not None}
    same(model(tmp_path, "LSTM", **attrs), lengths=lengths)


def test_numbers_of_activations_are_read_in_order(tmp_path: Path) -> None:
    activations = ["HardSigmoid", "LeakyRelu", "HardSigmoid"]
    numbers = {"activation_alpha": [0.3, 0.1, 0.4], "activation_beta": [0.45, 0.6]}
    same(model(tmp_path, "LSTM", activations=activations, **numbers))


def test_directions_with_different_activations_are_refused(tmp_path: Path) -> None:
    path = model(tmp_path, "RNN", direction="bidirectional", activations=["Relu"])
    network = onnx.load(path)
    for attribute in network.graph.node[0].attribute:
        if attribute.name == "activations":
            attribute.strings[1] = b"Tanh"
    onnx.save(network, path)
    with pytest.raises(InvalidModel, match="directions of the RNN have different activations: relu, tanh"):
        load_network(path)


@pytest.mark.parametrize("kind", GATES)
def test_a_state_starts_at_zero_and_an_offset_is_none_where_they_are_not_given(
    tmp_path: Path, kind: str
) -> None:
    same(model(tmp_path, kind, state=False, bias=False))


@pytest.mark.parametrize(("batch", "hidden", "target"), [(1, 32, WIDE), (1, 7, HASWELL), (7, 16, HASWELL)])
def test_any_number_of_sequences_and_units_fits(tmp_path: Path, batch: int, hidden: int, target: str) -> None:
    same(model(tmp_path, "LSTM", batch=batch, hidden=hidden), batch, as_tvm_target(target))


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"clip": 1.0}, "a clip"),
        ({"activations": ["Sigmoid", "Elu", "Tanh"]}, "activations sigmoid, elu, tanh"),
        ({"input_forget": 1}, "an input gate that is coupled"),
    ],
)
def test_a_form_that_is_not_read_is_named(tmp_path: Path, attrs: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidModel, match=f"TVM cannot import LSTM: the LSTM has {words}"):
        load_network(model(tmp_path, "LSTM", **attrs))


def test_sums_keep_the_machine_busy_and_fit_its_registers() -> None:
    for lanes, registers, room in ((16, 32, 24), (8, 16, 12), (4, 32, 24)):
        for batch in (1, 2, 6, 32):
            scan = Scan("LSTM", 1, batch, 256, (False,), lanes, registers)
            assert 8 <= scan.rows * scan.wide * scan.gates <= room
