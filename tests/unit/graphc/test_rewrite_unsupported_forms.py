"""Forms of operators that TVM's importer would take for others: ONNX's own cases give the right numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.zoo.trying_child import try_case
from mallorn.core.errors import InvalidModel
from mallorn.graphc.onnx.rewrite_unsupported_forms import rewrite
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from tests.fixtures.onnx_network import onnx_network, saved
from tests.unit.graphc.networks import run, run_onnxruntime

RIGHT = [
    "test_attention_23_boolmask_fullymasked_row_nan_robustness",
    "test_attention_4d_causal_with_past_and_present",
    "test_attention_4d_gqa",
    "test_bitshift_left_int32_negative_shift",
    "test_bitshift_right_int32_shift_ge_width",
    "test_bitshift_right_uint16",
    "test_celu",
    "test_col2im_dilations",
    "test_compress_default_axis",
    "test_compress_negative_axis",
    "test_col2im_pads",
    "test_col2im_strides",
    "test_convtranspose_output_shape",
    "test_dft_axis",
    "test_dft_inverse_opset19",
    "test_dft_irfft",
    "test_dft_rfft_opset19",
    "test_dropout_default_mask",
    "test_eyelike_populate_off_main_diagonal",
    "test_group_normalization_example",
    "test_gru_batchwise",
    "test_isinf_negative",
    "test_isinf_positive",
    "test_l1normalization_axis_last",
    "test_l2normalization_axis_0",
    "test_layer_normalization_4d_axis2",
    "test_lstm_batchwise",
    "test_convinteger_with_padding",
    "test_mod_float_edge_cases_fmod_0_float32",
    "test_nonmaxsuppression_iou_threshold_boundary",
    "test_nonmaxsuppression_suppress_by_IOU",
    "test_onehot_negative_indices",
    "test_onehot_with_axis",
    "test_pow_types_float32_int64",
    "test_pow_types_int64_int64",
    "test_reduce_max_bool_inputs",
    "test_resize_downsample_scales_cubic_A_n0p5_exclude_outside",
    "test_resize_downsample_scales_linear",
    "test_resize_downsample_scales_linear_half_pixel_symmetric",
    "test_resize_downsample_sizes_cubic_antialias",
    "test_resize_upsample_scales_nearest_axes_3_2",
    "test_resize_upsample_sizes_nearest_axes_2_3",
    "test_reversesequence_batch",
    "test_reversesequence_time",
    "test_rms_normalization_3d_axis0_epsilon",
    "test_scan9_sum",
    "test_spacetodepth_crd_mode_example",
    "test_stft",
    "test_stft_with_window",
    "test_sum_example",
    "test_sum_one_input",
    "test_sum_two_inputs",
    "test_swiglu",
    "test_upsample_nearest",
]


@pytest.mark.parametrize("name", RIGHT)
def test_a_case_of_onnx_comes_in_and_is_right(name: str) -> None:
    assert (answer := try_case(name)).outcome == "right", answer


def graph_of(operator: str, *given: str, outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    """A model of one node on a float32 input of 4x6, and constants that are true."""
    node = helper.make_node(operator, ["x", *given], [f"y{at}" for at in range(outputs)], **attributes)
    known = {"training": np.array(True), "ratio": np.float32(0.5)}
    constants = {name: known[name] for name in given if name in known}
    return onnx_network([node], {"x": [4, 6]}, dict.fromkeys(node.output), opset=18, **constants)


def test_what_only_training_has_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(graph_of("Dropout", "ratio", "training"), path)
    with pytest.raises(InvalidModel, match="Dropout is in training mode: export for evaluation"):
        load_network(path)


def test_what_tvm_would_compute_otherwise_is_refused_with_what_to_do() -> None:
    answer = try_case("test_roialign_mode_max")
    assert answer.outcome == "refused"
    assert "export the model with mode=" in answer.message


@pytest.mark.parametrize("dtype", ["int16", "uint16", "uint32"])
def test_integers_that_tvm_does_not_sort_are_sorted_as_int64(dtype: str, tmp_path: Path) -> None:
    values = np.array([[3, np.iinfo(dtype).max, np.iinfo(dtype).min, 7]], dtype)
    node, count = helper.make_node("TopK", ["x", "count"], ["largest", "places"]), np.array([2])
    path = saved(
        tmp_path / "m.onnx", [node], {"x": values}, {"largest": values[:, :2]}, opset=18, count=count
    )
    largest = run(load_network(path).mod, values)
    assert largest.dtype == dtype
    assert largest.tolist() == [[np.iinfo(dtype).max, 7]]


def test_the_largest_numbers_in_any_order_are_sorted(tmp_path: Path) -> None:
    node, values = (
        helper.make_node("TopK", ["x", "count"], ["largest", "i"], sorted=0),
        np.float32([[3, 9, 7]]),
    )
    path = saved(tmp_path / "m.onnx", [node], {"x": values}, {"largest": [1, 2]}, count=[2])
    assert run(load_network(path).mod, values).tolist() == [[9, 7]]


def test_sorting_uint64_is_refused_with_what_to_do() -> None:
    answer = try_case("test_top_k_uint64")
    assert answer.outcome == "refused"
    assert "cast to int64 before the TopK" in answer.message


def test_a_transform_whose_product_would_be_many_megabytes_is_refused() -> None:
    model = graph_of("DFT", axis=1)
    model.opset_import[0].version = 17
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1 << 14, 1]))
    with pytest.raises(ValueError, match="DFT of 16384 numbers is too long"):
        rewrite(model)


def test_an_stft_takes_a_signal_without_a_last_axis_as_onnxruntime_does(tmp_path: Path) -> None:
    node = helper.make_node("STFT", ["x", "step", "window", "length"], ["y"])
    window, signal = np.hanning(32).astype("float32"), np.random.default_rng(1).random((2, 400), "float32")
    numbers = {"step": np.int64(10), "window": window, "length": np.int64(32)}
    path = saved(tmp_path / "m.onnx", [node], {"x": [2, 400]}, {"y": None}, **numbers)
    spectrum = run(load_network(path).mod, signal)
    np.testing.assert_allclose(spectrum, run_onnxruntime(path, signal)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("time", "batch"), [(0, 1), (1, 0)])
def test_sequences_are_reversed_within_given_lengths(tmp_path: Path, time: int, batch: int) -> None:
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"], time_axis=time, batch_axis=batch)
    x = np.random.default_rng(1).random((4, 4, 3), "float32")
    lengths = np.array([4, 1, 3, 2])
    path = saved(tmp_path / "m.onnx", [node], {"x": x, "n": lengths}, {"y": x})
    found = run(load_network(path).mod, x, lengths)
    np.testing.assert_array_equal(found, run_onnxruntime(path, x, lengths)[0])


def test_sizes_that_another_rewrite_makes_known_are_no_reason_to_refuse(tmp_path: Path) -> None:
    product = helper.make_node("FusedMatMul", ["x", "w"], ["product"], domain="com.microsoft")
    nodes = [product, helper.make_node("EyeLike", ["product"], ["y"])]
    w = np.ones((4, 5), "float32")
    path = saved(tmp_path / "m.onnx", nodes, {"x": [3, 4]}, {"y": [3, 5]}, w=w)
    np.testing.assert_array_equal(run(load_network(path).mod, w[:3, :4]), np.eye(3, 5))


@pytest.mark.parametrize("parts", [("x", "nothing", "x"), ("nothing", "x")])
def test_a_part_without_elements_is_left_out_of_a_concatenation(
    tmp_path: Path, parts: tuple[str, ...]
) -> None:
    node = helper.make_node("Concat", parts, ["y"], axis=-2)
    nothing, x = np.zeros((1, 0, 3), "float32"), np.arange(6, dtype="float32").reshape(1, 2, 3)
    path = saved(tmp_path / "m.onnx", [node], {"x": x}, {"y": None}, nothing=nothing)
    network = load_network(path).mod
    assert "(1, 0, 3)" not in network.script(show_meta=True)
    np.testing.assert_array_equal(run(network, x), run_onnxruntime(path, x)[0])


@pytest.mark.parametrize(
    "model",
    [graph_of("Relu"), graph_of("IsInf"), graph_of("Dropout"), graph_of("Dropout", "ratio")],
    ids=["another operator", "both sides", "without mask", "with a ratio"],
)
def test_what_tvm_takes_as_it_is_stays(model: onnx.ModelProto) -> None:
    assert rewrite(model) is model


def test_an_axis_that_keeps_its_size_is_not_multiplied() -> None:
    scales = np.array([1, 1, 1, 0.6], "float32")
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    written = rewrite(onnx_network([node], {"x": [1, 2, 8, 10]}, {"y": None}, opset=18, scales=scales))
    assert [node.op_type for node in written.graph.node] == ["MatMul", "Identity"]


def constants(**values: Any) -> dict[str, Any]:
    return {name: np.asarray(value) for name, value in values.items()}


HALF, LARGER = (np.array([1, 1, size, size], "float32") for size in (0.5, 1.5))
OLD_FORMS = {
    "ArgMax of a negative axis": (10, ("ArgMax", ["x"], {"axis": -2}), {}),
    "Concat of a negative axis": (10, ("Concat", ["x", "x"], {"axis": -1}), {}),
    "LpNormalization": (11, ("LpNormalization", ["x"], {"axis": 1}), {}),
    "Resize to half": (10, ("Resize", ["x", "s"], {"mode": "nearest"}), constants(s=HALF)),
    "Resize to three halves": (10, ("Resize", ["x", "s"], {"mode": "linear"}), constants(s=LARGER)),
    "Slice by attributes": (9, ("Slice", ["x"], {"starts": [1, -3], "ends": [2, 2**62]}), {}),
    "Slice of some axes": (9, ("Slice", ["x"], {"starts": [1], "ends": [-1], "axes": [3]}), {}),
    "TopK with an input for its count": (10, ("TopK", ["x", "k"], {}), constants(k=[2])),
}


@pytest.mark.parametrize("name", OLD_FORMS)
def test_forms_of_old_opsets_give_the_numbers_of_onnxruntime(tmp_path: Path, name: str) -> None:
    opset, (operator, given, attributes), weights = OLD_FORMS[name]
    node = helper.make_node(operator, given, ["y", "z"][: 2 if operator == "TopK" else 1], **attributes)
    x = np.random.default_rng(1).random((2, 3, 8, 8), "float32")
    network = onnx_network([node], {"x": x}, {}, opset=opset, ir_version=5, **weights)
    network.graph.output.extend(onnx.ValueInfoProto(name=output) for output in node.output)
    onnx.save(network, path := tmp_path / "m.onnx")
    found = run(load_network(path).mod, x)
    results = found if isinstance(found, list) else [found]
    for ours, theirs in zip(results, run_onnxruntime(path, x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_one_hot_vector_of_an_old_opset_comes_in(tmp_path: Path) -> None:
    node = helper.make_node("OneHot", ["x", "d", "v"], ["y"])
    x = np.array([0, 2, -1])
    weights = constants(d=[4], v=np.float32([2, 5]))
    path = saved(tmp_path / "m.onnx", [node], {"x": x}, {"y": [3, 4]}, opset=11, **weights)
    np.testing.assert_array_equal(run(load_network(path).mod, x), run_onnxruntime(path, x)[0])


def test_a_norm_with_results_for_training_is_refused(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    node = helper.make_node("BatchNormalization", ["x", *names], ["y", *"efgh"])
    weights = {name: np.ones(4, "float32") for name in names}
    path = saved(tmp_path / "m.onnx", [node], {"x": [3, 4]}, {"y": [3, 4]}, opset=9, **weights)
    with pytest.raises(InvalidModel, match="in training mode: export for evaluation"):
        load_network(path)


def test_boxes_that_overlap_are_suppressed_without_a_threshold(tmp_path: Path) -> None:
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "count"], ["y"])
    boxes = np.float32([[[0, 0, 1, 1], [0.7, 0.7, 1.7, 1.7], [3, 3, 4, 4]]])
    scores = np.float32([[[0.9, 0.8, 0.7]]])
    path = saved(
        tmp_path / "m.onnx", [node], {"boxes": boxes, "scores": scores}, {"y": TensorProto.INT64}, count=[3]
    )
    np.testing.assert_array_equal(
        run(load_network(path).mod, boxes, scores), run_onnxruntime(path, boxes, scores)[0]
    )
