"""Concatenations of channels copy part by part, and compute what follows on the way."""

from collections.abc import Mapping
from typing import Any

import pytest
import tvm
from tvm import relax

from mallorn.graphc.conv.conv3x3_to_winograd import Conv3x3ToWinograd
from mallorn.graphc.layout.concat_to_copies import MOST_PARTS, ConcatToCopies
from mallorn.workers.tvm.space.rebuild_schedule import full_trace
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc.networks import HASWELL, NHWC, assert_same, network, program, scheduled, weights
from tests.unit.graphc.pass_conformance import PassConformance, graph_text
from tests.unit.graphc.pass_conformance import operators as named

WIDE, NARROW = (1, 3, 5, 24), (1, 3, 5, 4)


def joined(*parts: Any, axis: int = -1) -> Any:
    return relax.op.concat(list(parts), axis)


def pooled(emit: Any, x: Any) -> Any:
    """What reads a result and is no element-wise operator."""
    return relax.op.nn.max_pool2d(x, (2, 2), layout="NHWC")


def scaled(emit: Any, x: Any) -> Any:
    """A factor and a summand a channel, and a limit."""
    channels = int(x.ty.shape[-1])
    y = emit(relax.op.add(emit(relax.op.multiply(x, weights(channels))), weights(1, channels)))
    return relax.op.nn.relu(y)


class TestConcatToCopies(PassConformance):
    PASS = ConcatToCopies
    BEFORE = """
lv[1, 3, 5, 28] = concat((x0[1, 3, 5, 24], x1[1, 3, 5, 4]))
gv[1, 2, 4, 28] = nn.max_pool2d(lv[1, 3, 5, 28])
"""
    AFTER = """
lv[1, 3, 5, 28] = concatenate(x0[1, 3, 5, 24], x1[1, 3, 5, 4])
gv[1, 2, 4, 28] = nn.max_pool2d(lv[1, 3, 5, 28])
"""

    def fires(self) -> Any:
        return network(lambda emit, x, y: pooled(emit, emit(joined(x, y))), WIDE, NARROW)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the concat does not join rows": network(lambda _, x, y: joined(x, y, axis=1), WIDE, WIDE),
            "TVM fuses the concat into the operator that reads the result": network(
                lambda emit, x, y: relax.op.multiply(emit(joined(x, y)), weights(3, 1, 1)), WIDE, NARROW
            ),
            "no part of the concat fills a vector": network(
                lambda _, x, y: joined(x, y), (3, 5, 7), (3, 5, 3)
            ),
        }


def operators(mod: Any) -> list[str]:
    return [name.rstrip("0123456789") if name.startswith("concatenate") else name for name in named(mod)]


def numbers_stay(mod: Any) -> Any:
    """The module after the pass, whose numbers were compared."""
    return assert_same(ConcatToCopies(8)(mod), mod)


@pytest.mark.parametrize("shapes", [(WIDE, NARROW), (NARROW, WIDE), ((7, 7), (7, 80), (7, 8)), (WIDE, WIDE)])
def test_constants_and_limits_behind_it_are_computed_on_the_way(shapes: Any) -> None:
    mod = network(lambda emit, *parts: scaled(emit, emit(joined(*parts))), *shapes)
    assert operators(numbers_stay(mod)) == ["concatenate"]


def test_a_chain_of_concatenations_reads_each_part_where_it_was() -> None:
    """As in a dense block: every layer reads all before it, scaled its own way."""

    def body(emit: Any, x: Any, y: Any, z: Any) -> Any:
        first = emit(joined(x, y))
        second = emit(joined(first, z))
        return joined(
            *(emit(relax.op.mean(emit(scaled(emit, each)), -1)) for each in (first, second)), axis=1
        )

    after = numbers_stay(network(body, WIDE, NARROW, NARROW))
    assert operators(after) == ["concatenate", "mean", "concatenate", "mean", "concat"]
    assert "concatenate1(x0[1, 3, 5, 24], x1[1, 3, 5, 4], x2[1, 3, 5, 4], " in graph_text(after)


def test_what_others_read_as_it_is_is_copied_too() -> None:
    def body(emit: Any, x: Any, y: Any) -> Any:
        both = emit(joined(x, y))
        return joined(emit(pooled(emit, both)), emit(pooled(emit, emit(scaled(emit, both)))), axis=1)

    after = numbers_stay(network(body, WIDE, NARROW))
    assert operators(after).count("concatenate") == 2


def test_summands_of_what_tvm_fuses_nothing_with_join_the_row() -> None:
    """Every layer behind would add them again otherwise."""
    shape = 1, 16, 16, 32

    def body(emit: Any, x: Any) -> Any:
        y = emit(relax.op.nn.conv2d(x, weights(3, 3, 32, 32), padding=1, **NHWC))
        return scaled(emit, emit(joined(x, emit(relax.op.add(y, weights(32))))))

    after = numbers_stay(Conv3x3ToWinograd()(network(body, shape)))
    assert operators(after) == ["nn.pad", "winograd_pack", "matmul", "winograd_unpack", "concatenate"]


def test_summands_that_tvm_fuses_with_a_convolution_stay_there() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(relax.op.nn.conv2d(x, weights(1, 1, 24, 24), **NHWC))
        return scaled(emit, emit(joined(x, emit(relax.op.add(y, weights(24))))))

    assert operators(numbers_stay(network(body, WIDE))) == ["nn.conv2d", "add", "concatenate"]


def test_a_function_takes_so_many_parts_and_no_more() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(joined(x, x))
        for _ in range(MOST_PARTS):
            y = emit(joined(y, x))
        return relax.op.nn.relu(y)

    mod = network(body, (2, 8))
    assert operators(numbers_stay(mod)) == ["concatenate", "concatenate"]


def test_a_result_that_is_split_is_copied_too() -> None:
    def body(emit: Any, x: Any, y: Any) -> Any:
        left, right = (emit(relax.op.split(emit(joined(x, y)), [8], axis=-1))[at] for at in range(2))
        return relax.op.concat([emit(relax.op.mean(emit(each), -1)) for each in (left, right)], 1)

    assert "concatenate" in graph_text(numbers_stay(network(body, WIDE, NARROW)))


def test_the_first_guess_has_vectors_and_shares_rows() -> None:
    mod = ConcatToCopies(8)(network(lambda emit, x, y: scaled(emit, emit(joined(x, y))), WIDE, NARROW))
    function = program(mod)
    tir = tvm.ir.save_json(function)
    sketch, *_ = design_space(tir, HASWELL)
    assert full_trace(tir, HASWELL, sketch.trace, []) is not None
    text = scheduled(function, HASWELL).script()
    assert "T.vectorized(T.int64(24))" in text
    assert "T.parallel(" in text
