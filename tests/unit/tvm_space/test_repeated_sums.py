"""A sum that is computed again in each step of its consumer's sum begins at zero each time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import te

from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.space import Candidate, ChoiceKind, Sketch
from mallorn.workers.tvm.compile.reference_outputs import build_whole_program
from mallorn.workers.tvm.space.rebuild_schedule import full_trace
from mallorn.workers.tvm.space.sketches import design_space
from tests.fixtures.kernel_libraries import call
from tests.unit.tvm_space.programs import TARGET, text_of

ROWS, TERMS, COLUMNS = 4, 8, 16
Rows = Callable[[Any, Any], Any]


def divided_product(divisor: Rows) -> str:
    """The product of two matrices, each number of the left one divided by the sum of a row of a third."""
    a, b = te.placeholder((ROWS, TERMS), name="a"), te.placeholder((TERMS, COLUMNS), name="b")
    d, r, k = te.placeholder((TERMS, TERMS), name="d"), *(te.reduce_axis((0, TERMS)) for _ in range(2))
    total = te.compute((TERMS,), lambda i: te.sum(d[i, r], r), "total")
    c = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(a[i, k] / total[divisor(i, k)] * b[k, j], k), "c")
    return text_of(a, b, d, c)


def at_each_location(sketch: Sketch) -> list[Candidate]:
    """One candidate of random tiles for each place where the sum can be computed."""
    (first,) = SketchRules(sketch).sample(np.random.default_rng(1), 1).tolist()
    (candidate,) = sketch.candidates([first])
    found, at = [], 0
    for choice in sketch.choices:
        if choice.kind is ChoiceKind.LOCATION:
            decisions = candidate.decisions
            found += [
                replace(candidate, decisions=(*decisions[:at], value, *decisions[at + 1 :]))
                for value in choice.values
            ]
        at += choice.width
    return found


@pytest.mark.parametrize("divisor", [lambda i, k: i, lambda i, k: k], ids=["of the row", "of the term"])
def test_wherever_a_sum_is_computed_the_numbers_are_right(divisor: Rows, tmp_path: Path) -> None:
    tir, rng = divided_product(divisor), np.random.default_rng(0)
    shapes = (ROWS, TERMS), (TERMS, COLUMNS), (TERMS, TERMS)
    a, b, d = (rng.uniform(0.1, 1, shape).astype("float32") for shape in shapes)
    i, k = np.indices(a.shape)
    expected = a / d.sum(1)[divisor(i, k)] @ b
    *_, sketch = design_space(tir, TARGET)
    candidates = at_each_location(sketch)
    assert len(candidates) > 4
    for place, candidate in enumerate(candidates):
        trace = full_trace(tir, TARGET, sketch.trace, candidate.decisions)
        assert trace is not None
        library = str(tmp_path / f"{place}.so")
        build_whole_program(tir, trace, TARGET, library)
        *_, result = call(library, [a, b, d, np.full((ROWS, COLUMNS), np.nan, "float32")])
        np.testing.assert_allclose(result, expected, rtol=1e-4, err_msg=str(candidate))
