"""Softmax and layer norm a row at a time: TVM's numbers, in one loop over rows."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.graphc.norm.vectorize_softmax_and_layer_norm import VectorizeSoftmaxAndLayerNorm
from tests.unit.graphc import networks
from tests.unit.graphc.networks import (
    HASWELL,
    assert_same,
    difference,
    program,
    random,
    rewritten,
    run,
    scheduled,
)
from tests.unit.graphc.pass_conformance import PassConformance

SHAPES = [(3, 32), (1, 4, 5, 128), (2, 3, 48)]


def network(shape: tuple[int, ...], operator: Any, dtype: str = "float32") -> Any:
    return networks.network(lambda _, x: operator(x), shape, dtype=dtype)


def softmax(axis: int = -1) -> Any:
    return lambda x: relax.op.nn.softmax(x, axis)


def layer_norm(size: int, **options: Any) -> Any:
    gamma, beta = (relax.const(values) for values in random(2, size))
    options = {"axes": [-1], "epsilon": 1e-5, **options}
    return lambda x: relax.op.nn.layer_norm(x, gamma, beta, **options)


def kept(mod: Any, *arrays: Any, lanes: tuple[int, ...] = ()) -> None:
    assert_same(rewritten(VectorizeSoftmaxAndLayerNorm(*lanes), mod), mod, *arrays, tolerance=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spread", [1, 30], ids=lambda spread: f"spread over {spread}")
def test_softmax_is_tvms(shape: tuple[int, ...], spread: int) -> None:
    kept(network(shape, softmax()), spread * random(*shape))


@pytest.mark.parametrize("mask", [-np.inf, -3.4e38, -1e9, -1e4, -100])
def test_what_a_mask_takes_out_of_a_softmax_gets_nothing(mask: float) -> None:
    """Not a subnormal number, with which every product is slow."""
    x = random(4, 32)
    x[:, 5:] = mask
    after = rewritten(VectorizeSoftmaxAndLayerNorm(), network((4, 32), softmax()))
    found = run(after, x)
    assert not found[:, 5:].any()
    assert np.allclose(found.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("offset", [0, 100], ids=lambda offset: f"mean of {offset}")
def test_layer_norm_is_that_of_exact_sums(shape: tuple[int, ...], offset: int) -> None:
    x = random(*shape) + np.float32(offset)
    after = rewritten(VectorizeSoftmaxAndLayerNorm(), network(shape, layer_norm(shape[-1])))
    exact = x.astype("float64")
    centred = exact - exact.mean(-1, keepdims=True)
    gamma, beta = random(2, shape[-1])
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta
    assert difference(run(after, x), expected) <= 1e-4


class TestVectorizeSoftmaxAndLayerNorm(PassConformance):
    PASS = VectorizeSoftmaxAndLayerNorm
    BEFORE = "gv[4, 32] = nn.softmax(x0[4, 32])"
    AFTER = "gv[4, 32] = softmax_rows(x0[4, 32])"

    def fires(self) -> Any:
        return network((4, 32), softmax())

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the rows are short, or do not split into vectors of 8": network((32, 3), softmax()),
            "the softmax or norm is not along the last axis of rows": network((4, 32, 32), softmax(axis=1)),
            "the norm has no gains, or no offsets": network((4, 32), layer_norm(32, scale=False)),
            "the result is float16, not float32": network((4, 32), softmax(), dtype="float16"),
        }


@pytest.mark.parametrize(
    "mod",
    [network((32, 32), softmax(axis=0)), network((32,), softmax()), network((4, 24), layer_norm(24))],
    ids=["columns", "one row", "a vector and a half"],
)
def test_others_stay_as_they_are(mod: Any) -> None:
    assert rewritten(VectorizeSoftmaxAndLayerNorm(), mod) is None


def test_a_layer_norm_over_two_axes_stays_as_it_is() -> None:
    gamma, beta = (relax.const(values) for values in random(2, 4, 32))
    norm = network((3, 4, 32), lambda x: relax.op.nn.layer_norm(x, gamma, beta, axes=[-2, -1]))
    assert rewritten(VectorizeSoftmaxAndLayerNorm(), norm) is None


def test_rows_of_one_shape_share_their_function() -> None:
    twice = network((4, 32), lambda x: relax.op.nn.softmax(relax.op.nn.softmax(x)))
    after = rewritten(VectorizeSoftmaxAndLayerNorm(), twice)
    assert len(after.functions) == 2


@pytest.mark.parametrize(
    ("name", "operator"), [("softmax_rows", softmax()), ("layer_norm_rows", layer_norm(128))]
)
def test_metaschedule_gives_rows_to_the_cores_and_leaves_them_whole(name: str, operator: Any) -> None:
    after = rewritten(VectorizeSoftmaxAndLayerNorm(), network((1, 4, 128, 128), operator))
    text = scheduled(program(after, name), HASWELL).script()
    assert text.count("T.parallel(") == 1
    assert set(re.findall(r"T.vectorized\((\d+)\)", text)) == {"2", "4", "8", "16"}


@pytest.mark.parametrize("size", [24, 40, 48])
def test_narrow_vectors_fill_more_rows(size: int) -> None:
    for operator in (softmax(), layer_norm(size)):
        kept(network((3, size), operator), lanes=(8,))


def test_where_wide_vectors_fill_a_row_narrow_ones_are_taken_together() -> None:
    wide, narrow = (
        rewritten(VectorizeSoftmaxAndLayerNorm(*lanes), network((3, 32), softmax())) for lanes in ((), (8,))
    )
    tvm.ir.assert_structural_equal(narrow, wide)


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("size", [11, 33, 100, 197])
def test_a_softmax_whose_rows_end_within_a_vector_is_tvms(size: int, lanes: int) -> None:
    x = random(3, size)
    x[1, -2:] = 40
    for operator in (softmax(), lambda x: relax.op.nn.log_softmax(x)):
        kept(network((3, size), operator), x, lanes=(lanes,))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_logarithm_of_a_softmax_is_tvms(shape: tuple[int, ...]) -> None:
    kept(network(shape, lambda x: relax.op.nn.log_softmax(x)))
