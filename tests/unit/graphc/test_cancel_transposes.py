"""Transposes that leave all numbers in their order become reshapes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tvm import relax

from mallorn.graphc.layout.transposes import CancelTransposes
from tests.unit.graphc.networks import assert_same, network, random, run
from tests.unit.graphc.pass_conformance import PassConformance, graph_text, operators

TOKENS = (1, 30, 16)
Steps = Sequence[Sequence[int]]


def chained(steps: Steps, source: tuple[int, ...] = TOKENS, then: Any = relax.op.nn.relu) -> Any:
    """Reshapes to sizes, and transposes by axes, which begin with zero or hold it."""

    def body(emit: Any, x: Any) -> Any:
        for step in steps:
            turns = sorted(step) == list(range(len(step)))
            x = emit(relax.op.permute_dims(x, list(step)) if turns else relax.op.reshape(x, tuple(step)))
        return then(x)

    return network(body, source)


def numbers(steps: Steps, x: Any) -> Any:
    for step in steps:
        x = x.transpose(step) if sorted(step) == list(range(len(step))) else x.reshape(step)
    return np.maximum(x, 0)


IMAGE = ((0, 2, 1), (1, 16, 5, 6), (0, 2, 3, 1))


class TestCancelTransposes(PassConformance):
    PASS = CancelTransposes
    LANES = ()
    BEFORE = """
lv[1, 16, 30] = permute_dims(x0[1, 30, 16])
lv1[1, 16, 5, 6] = reshape(lv[1, 16, 30], [1, 16, 5, 6])
lv2[1, 5, 6, 16] = permute_dims(lv1[1, 16, 5, 6])
gv[1, 5, 6, 16] = nn.relu(lv2[1, 5, 6, 16])
"""
    AFTER = """
lv2[1, 5, 6, 16] = reshape(x0[1, 30, 16], [1, 5, 6, 16])
gv[1, 5, 6, 16] = nn.relu(lv2[1, 5, 6, 16])
"""

    def fires(self) -> Any:
        return chained(IMAGE)

    def leaves(self) -> Mapping[str, Any]:
        return {"no earlier transpose cancels this one": chained(((0, 2, 1),))}


MOVES_NOTHING = {
    "an image and back": (TOKENS, ((0, 2, 1), (1, 16, 5, 6), (1, 16, 30), (0, 2, 1))),
    "pieces of axes": ((6, 8), ((2, 3, 4, 2), (2, 3, 0, 1), (8, 6), (1, 0))),
    "two turns": ((2, 3, 4), ((1, 2, 0), (2, 0, 1))),
}


@pytest.mark.parametrize(("source", "steps"), MOVES_NOTHING.values(), ids=MOVES_NOTHING)
def test_what_moves_nothing_is_a_reshape(source: tuple[int, ...], steps: Steps) -> None:
    after, report = CancelTransposes().apply(chained(steps, source))
    x = random(*source)
    assert (report.fired, "permute_dims" in graph_text(after)) == (1, False)
    assert np.array_equal(run(after, x), numbers(steps, x))


LEFT = {
    "an axis of one": ((4, 1, 5), ((1, 0, 2),)),
    "rows and columns": ((6, 8), ((1, 0),)),
    "another image": (TOKENS, ((0, 2, 1), (1, 16, 5, 6), (0, 3, 2, 1))),
    "a channel shuffle": ((1, 8, 3), ((1, 2, 4, 3), (0, 2, 1, 3))),
    "pieces that share no border": ((4, 6), ((1, 0), (4, 6), (1, 0))),
    "heads": (TOKENS, ((1, 30, 4, 4), (0, 2, 1, 3))),
}


@pytest.mark.parametrize(("source", "steps"), LEFT.values(), ids=LEFT)
def test_what_moves_numbers_or_is_alone_is_left(source: tuple[int, ...], steps: Steps) -> None:
    assert CancelTransposes().apply(chained(steps, source))[1].fired == 0


def test_what_others_read_in_between_stays() -> None:
    def body(emit: Any, x: Any) -> Any:
        turned = emit(relax.op.permute_dims(x, [0, 2, 1]))
        back = emit(relax.op.permute_dims(turned, [0, 2, 1]))
        return relax.op.matmul(back, turned)

    mod = network(body, TOKENS)
    after, report = CancelTransposes().apply(mod)
    assert (report.fired, operators(assert_same(after, mod, tolerance=0)).count("permute_dims")) == (1, 1)
