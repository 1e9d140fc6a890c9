"""Weights of 8 and 4 bits in blocks: onnxruntime's numbers, and none of them kept as real numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from mallorn.core.errors import InvalidModel
from mallorn.graphc.quant.keep_block_quantized_weights import KeepBlockQuantizedWeights
from mallorn.graphc.quant.llvm_byte_dot_products import best_instruction
from mallorn.workers.tvm.network.extract_tasks import describe_task
from mallorn.workers.tvm.network.graph_recipes import TUNED, recipe_steps
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target, count_operators, run_steps
from mallorn.workers.tvm.programs.workload_key import rename_blocks_canonically
from tests.fixtures.onnx_network import onnx_network
from tests.unit.graphc import networks
from tests.unit.graphc.networks import HASWELL, difference, program, random, run_onnxruntime
from tests.unit.graphc.pass_conformance import PassConformance
from tests.unit.graphc.test_int8_dot_products import WIDE

pytest.importorskip("onnxruntime")

onnxruntime = pytest.importorskip("onnxruntime")
NEAR = 3e-4  # of the largest result: inputs are of 13 bits at least
LIMITS = {"INT4": (-8, 8), "UINT4": (0, 16), "INT8": (-128, 128), "UINT8": (0, 256)}


def model(nodes: Any, x: Any, y: tuple[int, ...], **weights: Any) -> onnx.ModelProto:
    """A network from `x`, whose sizes or an example are given, to `y`."""
    return onnx_network(nodes, {"x": x}, {"y": y}, opset=21, **weights)


def n_bits(
    rows: tuple[int, ...],
    inputs: int,
    outputs: int,
    *,
    bits: int,
    block: int,
    zeros: bool,
    bias: bool = False,
) -> onnx.ModelProto:
    rng = np.random.default_rng(inputs + outputs)
    blocks = -(-inputs // block)
    weights = {
        "w": rng.integers(0, 256, (outputs, blocks, block * bits // 8)).astype("uint8"),
        "s": rng.random(outputs * blocks).astype("float32") + 0.1,
        "z": rng.integers(0, 256, outputs * -(-blocks * bits // 8)).astype("uint8"),
        "b": rng.standard_normal(outputs).astype("float32"),
    }
    given = ["x", "w", "s", "z" if zeros else "", "", "b"]
    given = given if bias else given[: 4 if zeros else 3]
    attrs = {"bits": bits, "block_size": block, "K": inputs, "N": outputs}
    node = helper.make_node("MatMulNBits", given, ["y"], domain="com.microsoft", **attrs)
    used = {name: weight for name, weight in weights.items() if name in given}
    return model([node], (*rows, inputs), (*rows, outputs), **used)


def coded(kind: str, shape: tuple[int, int], axis: int, block: int | None) -> tuple[Any, dict[str, Any]]:
    """A matrix that a node decodes, blocks along an axis, or a scale for each place of the other one."""
    rng, limits, dtype = np.random.default_rng(shape), LIMITS[kind], getattr(TensorProto, kind)
    sizes = list(shape)
    sizes[axis] = 1 if block is None else -(-shape[axis] // block)
    scales = rng.random(sizes).astype("float32") + 0.1
    found = {"w": rng.integers(*limits, shape), "z": rng.integers(*limits, scales.shape)}
    kept = scales if block else scales.reshape(-1)
    tensors = {
        name: helper.make_tensor(name, dtype, shape if name == "w" else kept.shape, value.reshape(-1))
        for name, value in found.items()
    }
    attrs = {"axis": axis, "block_size": block} if block else {"axis": 1 - axis}
    return helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], **attrs), tensors | {"s": kept}


def lowered(network: onnx.ModelProto, folder: Path, target: str = WIDE) -> Any:
    onnx.save(network, folder / "m.onnx")
    found = as_tvm_target(target)
    return run_steps(load_network(folder / "m.onnx", target=found).mod, recipe_steps(TUNED)["before"], found)[
        0
    ]


def kept_as_reals(mod: Any) -> int:
    """How many real numbers the module has as constants."""
    count = 0

    def visit(node: Any) -> None:
        nonlocal count
        if isinstance(node, tvm.ir.GenericConst) and node.ty.dtype == "float32":
            count += int(np.prod(node.value.numpy().shape))

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return count


def ours(mod: Any, x: Any, target: str = WIDE) -> Any:
    return networks.run(mod, x, target=networks.unoptimized(target))


def theirs(network: onnx.ModelProto, x: Any) -> Any:
    """Of onnxruntime, as it is written: what it fuses, it computes with inputs of 8 bits."""
    return run_onnxruntime(network, x, fused=False)[0]


def runs_here(target: str) -> bool:
    """Whether this processor has the target's instruction."""
    host = tvm.target.codegen.llvm_get_system_cpu()
    with as_tvm_target(target):
        wanted = best_instruction()
    with as_tvm_target(f'{{"kind":"llvm","mcpu":"{host}","num-cores":1}}'):
        best = best_instruction()
    has = {16: 2, 8: 1}
    return best is not None and wanted is not None and has[best.lanes] >= has[wanted.lanes]


ANY_TARGET = pytest.mark.parametrize("target", [WIDE, HASWELL], ids=["512 bits", "256 bits"])


@ANY_TARGET
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.sampled_from([(1,), (1, 1), (2, 3), (9,)]),
    inputs=st.integers(17, 200),
    outputs=st.sampled_from([32, 40, 48, 63]),
    bits=st.sampled_from([4, 8]),
    block=st.sampled_from([16, 32, 64, 128, 256]),
    zeros=st.booleans(),
    bias=st.booleans(),
)
def test_a_product_of_few_bits_is_onnxruntimes(
    tmp_path: Path,
    target: str,
    rows: tuple[int, ...],
    inputs: int,
    outputs: int,
    bits: int,
    block: int,
    zeros: bool,
    bias: bool,
) -> None:
    if not runs_here(target):
        pytest.skip("this processor lacks the instruction")
    network = n_bits(rows, inputs, outputs, bits=bits, block=block, zeros=zeros, bias=bias)
    mod = lowered(network, tmp_path, target)
    x = random(*rows, inputs)
    assert difference(ours(mod, x, target), theirs(network, x)) < NEAR
    assert any(f"int{bits}_blocks" in name for name in count_operators(mod))


@pytest.mark.parametrize("block", [32, None], ids=["blocks", "columns"])
@pytest.mark.parametrize("transposed", [False, True], ids=["MatMul", "Gemm"])
@pytest.mark.parametrize("kind", LIMITS)
def test_decoded_weights_of_a_product_stay_bytes(
    tmp_path: Path, kind: str, transposed: bool, block: int | None
) -> None:
    if not runs_here(WIDE):
        pytest.skip("this processor lacks the instruction")
    inputs, outputs = 96, 48
    shape, axis = ((outputs, inputs), 1) if transposed else ((inputs, outputs), 0)
    node, weights = coded(kind, shape, axis, block)
    product = helper.make_node("MatMul", ["x", "d"], ["y"])
    if transposed:
        product = helper.make_node("Gemm", ["x", "d"], ["y"], transB=1)
    network = model([node, product], (3, inputs), (3, outputs), **weights)
    mod, x = lowered(network, tmp_path), random(3, inputs)
    assert difference(ours(mod, x), theirs(network, x)) < NEAR
    assert kept_as_reals(mod) <= inputs * outputs // 16


@pytest.mark.parametrize("axis", [0, 1], ids=["of columns", "of rows"])
@pytest.mark.parametrize("kind", LIMITS)
def test_rows_of_a_table_are_decoded_behind_the_look_up(tmp_path: Path, kind: str, axis: int) -> None:
    node, weights = coded(kind, (64, 96), axis, 32 if axis else None)
    gather = helper.make_node("Gather", ["d", "x"], ["y"])
    places = np.array([[0, 63, 7], [-1, 5, 5]])
    network = model([node, gather], places, (2, 3, 96), **weights)
    mod = lowered(network, tmp_path)
    np.testing.assert_allclose(ours(mod, places), theirs(network, places), rtol=1e-6)
    assert kept_as_reals(mod) < 64 * 96 // 16


def decoded(emit: Any, *shape: int, scales: tuple[int, ...], joined: tuple[int, ...] = ()) -> Any:
    """Constant bytes times scales, as the importer writes it."""
    real = emit(
        relax.op.astype(relax.const(np.arange(np.prod(shape), dtype="uint8").reshape(shape)), "float32")
    )
    found = emit(relax.op.multiply(real, relax.const(random(*scales))))
    return emit(relax.op.reshape(found, joined)) if joined else found


def product(*, data: tuple[int, ...] = (2, 8), **weights: Any) -> Any:
    shape, scales = weights.get("shape", (8, 8)), weights.get("scales", (1, 8))

    def body(emit: Any, x: Any) -> Any:
        return relax.op.matmul(x, decoded(emit, *shape, scales=scales, joined=weights.get("joined", ())))

    return networks.network(body, data)


def looked_up() -> Any:
    def body(emit: Any, x: Any) -> Any:
        table = decoded(emit, 4, 2, 8, scales=(4, 1, 8), joined=(8, 8))
        return relax.op.take(table, emit(relax.op.astype(x, "int32")), 0)

    return networks.network(body, (2, 3))


class TestKeepBlockQuantizedWeights(PassConformance):
    PASS = KeepBlockQuantizedWeights
    TOLERANCE = NEAR
    BEFORE = """
lv[8, 8] = astype(constant[8, 8])
lv1[8, 8] = multiply(lv[8, 8], constant[1, 8])
gv[2, 8] = matmul(x0[2, 8], lv1[8, 8])
"""
    AFTER = "gv[2, 8] = int8_blocks(x0[2, 8], constant[1, 1, 64], constant[1, 1, 8])"

    def fires(self) -> Any:
        return product()

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the weights are not dequantised from constant bytes": networks.network(
                lambda _, x: relax.op.matmul(x, networks.weights(8, 8)), (2, 8)
            ),
            "the outputs fill too small a part of a vector": product(shape=(8, 4), scales=(1, 4)),
            "the blocks of the weights lie along the outputs": product(scales=(8, 1)),
            "the scales of the weights are not per block along one axis": product(scales=(8, 8)),
            "the size of the blocks does not suit the instruction": product(
                data=(2, 12), shape=(2, 6, 8), scales=(2, 1, 8), joined=(12, 8)
            ),
            "the blocks of the weights span several rows": looked_up(),
        }

    def computed(self, after: Any, *arrays: Any) -> Any:
        """With the best_instruction, which alone adds as many bits."""
        return ours(after, *arrays, target=self.TARGET)


def unmoved() -> Any:
    def body(emit: Any, x: Any) -> Any:
        weights = decoded(emit, 8, 8, scales=(1, 8))
        return relax.op.matmul(x, emit(relax.op.permute_dims(weights, [0, 1])))

    return networks.network(body, (2, 8))


@pytest.mark.parametrize(
    ("mod", "inputs"),
    [(unmoved(), 8), (product(data=(2, 16), shape=(2, 8, 8), scales=(2, 1, 1), joined=(16, 8)), 16)],
    ids=["a transpose that moves nothing", "a scale for all columns of a block"],
)
def test_a_product_of_weights_that_are_decoded_otherwise_keeps_its_numbers(mod: Any, inputs: int) -> None:
    with as_tvm_target(HASWELL):
        after = networks.rewritten(KeepBlockQuantizedWeights(), mod)
    x = random(2, inputs)
    assert difference(ours(after, x, HASWELL), networks.run(mod, x)) < NEAR


def test_without_the_instruction_weights_are_real_numbers(tmp_path: Path) -> None:
    network, x = n_bits((2,), 64, 32, bits=4, block=32, zeros=True), random(2, 64)
    plain = '{"kind":"llvm","num-cores":1}'
    mod = lowered(network, tmp_path, plain)
    assert difference(ours(mod, x, plain), theirs(network, x)) < 1e-5
    assert not any("blocks" in name for name in count_operators(mod))


def test_inputs_that_are_no_numbers_give_none(tmp_path: Path) -> None:
    if not runs_here(WIDE):
        pytest.skip("this processor lacks the instruction")
    mod = lowered(n_bits((3,), 64, 32, bits=4, block=32, zeros=False), tmp_path)
    x = random(3, 64)
    x[0, 5], x[1] = np.nan, 0
    found = ours(mod, x)
    assert np.isnan(found[0]).all()
    assert not found[1].any()
    assert np.isfinite(found[2]).all()


def test_the_work_of_a_product_is_counted(tmp_path: Path) -> None:
    mod = lowered(n_bits((2,), 64, 32, bits=4, block=32, zeros=False), tmp_path)
    function = rename_blocks_canonically(program(mod))
    assert describe_task(function, "t", 1).flops == 2 * 2 * 64 * 32


def test_nobody_lays_packed_weights_out_anew(tmp_path: Path) -> None:
    mod = lowered(n_bits((2,), 64, 32, bits=4, block=32, zeros=False, bias=True), tmp_path)
    assert "layout_free_buffers" not in program(mod)["main"].attrs


def test_sizes_behind_a_product_are_known(tmp_path: Path) -> None:
    """A reshape by the sizes of what it computes."""
    network = n_bits((2, 3), 64, 32, bits=4, block=32, zeros=False)
    network.graph.node[0].output[0] = "p"
    network.graph.node.extend(
        [helper.make_node("Shape", ["p"], ["shape"]), helper.make_node("Reshape", ["p", "shape"], ["y"])]
    )
    assert lowered(network, tmp_path) is not None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda node: node.input.extend(["", "order"]), "g_idx"),
        (lambda node: node.attribute.extend([helper.make_attribute("bits", 2)]), "2 bits"),
    ],
    ids=["g_idx reorders", "two bits"],
)
def test_what_is_not_taken_is_said(tmp_path: Path, change: Any, told: str) -> None:
    network = n_bits((2,), 64, 32, bits=4, block=32, zeros=False)
    (node,) = network.graph.node
    del node.attribute[[each.name for each in node.attribute].index("bits")]
    change(node)
    order = numpy_helper.from_array(np.arange(64, dtype="int32")[::-1] // 32, "order")
    network.graph.initializer.append(order)
    with pytest.raises(InvalidModel, match=told):
        lowered(network, tmp_path)


def table_of(bits: int, kind: str, *, zeros: bool) -> onnx.ModelProto:
    """A look-up in a table of 40 rows of 64 numbers, in blocks of 32; bytes hold two numbers of 4 bits."""
    rng, packed = np.random.default_rng(bits), kind == "UINT8" and bits == 4
    sizes, blocks = {"w": (40, 32 if packed else 64), "z": (40, 1 if packed else 2)}, (40, 2)
    tensors = {
        name: helper.make_tensor(
            name, getattr(TensorProto, kind), shape, rng.integers(*LIMITS[kind], shape).ravel()
        )
        for name, shape in sizes.items()
        if name == "w" or zeros
    }
    attrs = {"bits": bits, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}
    given = ["w", "x", "s", *(["z"] if zeros else [])]
    node = helper.make_node("GatherBlockQuantized", given, ["y"], domain="com.microsoft", **attrs)
    scales = rng.random(blocks).astype("float32") + 0.1
    return model([node], np.zeros((2, 3), "int64"), (2, 3, 64), **tensors, s=scales)


@pytest.mark.parametrize("zeros", [False, True], ids=["no zero points", "zero points"])
@pytest.mark.parametrize(("bits", "kind"), [(4, "UINT4"), (4, "INT4"), (4, "UINT8"), (8, "UINT8")], ids=str)
def test_a_look_up_in_a_table_of_few_bits_is_onnxruntimes(
    tmp_path: Path, bits: int, kind: str, zeros: bool
) -> None:
    if not runs_here(WIDE):
        pytest.skip("this processor lacks the instruction")
    network = table_of(bits, kind, zeros=zeros)
    places = np.array([[0, 39, 7], [7, 20, 1]], "int64")
    assert difference(ours(lowered(network, tmp_path), places), theirs(network, places)) < 1e-6
