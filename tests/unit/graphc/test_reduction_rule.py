"""Reductions under the rule of ours: the same numbers, vectors of what lies side by side, stock traces."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.core.values.machine import assume_typical_cpu
from mallorn.graphc.tasks.mark_tasks import FOLD, MarkReductions
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.searchers.space import ChoiceKind
from mallorn.workers.tvm.programs.loop_nests import nests
from mallorn.workers.tvm.records.tuning_database import apply_trace
from mallorn.workers.tvm.space.rebuild_schedule import full_trace
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc import networks
from tests.unit.graphc.networks import HASWELL, call, network, random, scheduled

WIDE = '{"kind":"llvm","mcpu":"znver4","num-cores":2}'
Reduce = Callable[[Any], Any]


def summed(*axes: int, keepdims: bool = True) -> Reduce:
    return lambda x: relax.op.sum(x, list(axes), keepdims)


def program(reduce: Reduce, *shape: int, lanes: int = 8) -> Any:
    """The marked tensor function of a reduction, as a task has it."""
    mod = networks.fused(network(lambda _, x: reduce(x), shape))
    return networks.program(MarkReductions(lanes)(mod))


def answer(mod: Any, *shape: int) -> Any:
    """What the last argument holds once the program ran."""
    out = mod["main"].params[-1]
    return call(mod, random(*shape), np.full(tuple(map(int, out.shape)), 7, str(out.dtype)))


CASES: dict[str, tuple[Reduce, tuple[int, ...]]] = {
    "rows": (summed(-1), (6, 128)),
    "rows of a prime length": (summed(-1), (6, 131)),
    "columns": (summed(0), (96, 40)),
    "the middle": (summed(1), (3, 50, 24)),
    "an image": (summed(2, 3), (1, 4, 8, 8)),
    "everything": (summed(0, 1), (256, 128)),
    "everything, to a number": (summed(0, 1, keepdims=False), (256, 128)),
    "long columns of few results": (summed(0), (4096, 8)),
    "first and last": (summed(0, 2), (4, 6, 32)),
    "a mean": (lambda x: relax.op.mean(x, [-1], keepdims=True), (6, 128)),
    "a variance": (lambda x: relax.op.variance(x, [-1], keepdims=True), (6, 128)),
    "the largest": (lambda x: relax.op.max(x, [0], keepdims=True), (64, 32)),
    "where the largest is": (lambda x: relax.op.argmax(x, 1, keepdims=True), (6, 128)),
    "where the largest is, beside others": (lambda x: relax.op.argmax(x, 0, keepdims=True), (64, 32)),
    "a window": (lambda x: relax.op.nn.max_pool2d(x, (5, 5), padding=(2, 2)), (1, 4, 16, 16)),
    "a window, channels last": (
        lambda x: relax.op.nn.avg_pool2d(x, (3, 3), strides=(2, 2), layout="NHWC"),
        (1, 9, 9, 32),
    ),
    "a softmax of the middle": (lambda x: relax.op.nn.softmax(x, 1), (2, 12, 32)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_the_plain_program(case: str) -> None:
    reduce, shape = CASES[case]
    mod = program(reduce, *shape)
    tir = tvm.ir.save_json(mod)
    for sketch in design_space(tir, WIDE):
        (guess,) = ranked([sketch], nests(tir), assume_typical_cpu(2, 16), 1)
        trace = full_trace(tir, WIDE, sketch.trace, guess.decisions)
        assert trace is not None
        expected = answer(mod, *shape)
        np.testing.assert_allclose(
            answer(apply_trace(mod, trace).mod, *shape), expected, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("case", ["rows", "columns", "the middle", "everything", "a window, channels last"])
@pytest.mark.parametrize(("target", "lanes"), [(WIDE, 16), (HASWELL, 8)], ids=["avx512", "avx2"])
def test_sums_are_vectors(case: str, target: str, lanes: int) -> None:
    reduce, shape = CASES[case]
    mod = program(reduce, *shape, lanes=lanes)
    tir = tvm.ir.save_json(mod)
    (sketch,) = design_space(tir, target)
    (guess,) = ranked([sketch], nests(tir), assume_typical_cpu(2, lanes), 1)
    text = scheduled(mod, target, guess.decisions).script()
    update = text[: text.index("_update")]
    loops = [line.strip() for line in update.splitlines() if line.strip().startswith("for ")]
    assert "T.vectorized" in loops[-1]


def test_what_a_rule_suggests_can_be_searched() -> None:
    reduce, shape = CASES["everything"]
    (sketch,) = design_space(tvm.ir.save_json(program(reduce, *shape)), WIDE)
    tiles = [choice for choice in sketch.choices if choice.kind is ChoiceKind.TILE]
    assert [choice.suggested for choice in tiles] == [(16, 16), (4, 32)]


def test_products_keep_their_rules() -> None:
    mod = networks.fused(network(lambda _, x: relax.op.matmul(x, x), (16, 16)))
    assert FOLD not in MarkReductions(8)(mod).script()


def test_rows_that_cannot_be_cut_into_vectors_keep_tvms_rules() -> None:
    reduce, shape = CASES["rows of a prime length"]
    assert FOLD not in program(reduce, *shape).script()
