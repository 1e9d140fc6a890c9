"""A sum that is computed again in each step of its consumer's sum begins at zero each time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import tvm
from tvm import te

from searchers.decision_space import SketchRules
from searchers.space import Candidate, ChoiceKind, Sketch
from tests.unit.tvm_space.programs import TARGET
from workers.tvm.rebuild_schedule import full_trace
from workers.tvm.reference_outputs import build_whole, call
from workers.tvm.sketches import design_space

ROWS, TERMS, COLUMNS = 4, 8, 16


def shares_by_weights() -> str:
    """The rows of `a`, each divided by its sum, by a matrix."""
    a, b = te.placeholder((ROWS, TERMS), name="a"), te.placeholder((TERMS, COLUMNS), name="b")
    r, k = te.reduce_axis((0, TERMS), "r"), te.reduce_axis((0, TERMS), "k")
    total = te.compute((ROWS,), lambda i: te.sum(a[i, r], r), "total")
    c = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(a[i, k] / total[i] * b[k, j], k), "c")
    return str(tvm.ir.save_json(tvm.IRModule({"main": te.create_prim_func([a, b, c])})))


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


def test_wherever_a_sum_is_computed_the_numbers_are_right(tmp_path: Path) -> None:
    tir, rng, places = shares_by_weights(), np.random.default_rng(0), 0
    a, b = (rng.uniform(0.1, 1, shape).astype("float32") for shape in ((ROWS, TERMS), (TERMS, COLUMNS)))
    expected = a / a.sum(1, keepdims=True) @ b
    for sketch in design_space(tir, TARGET)[::4]:
        for candidate in at_each_location(sketch):
            trace = full_trace(tir, TARGET, sketch.trace, candidate.decisions)
            assert trace is not None
            library = str(tmp_path / f"{places}.so")
            build_whole(tir, trace, TARGET, library)
            *_, result = call(library, [a, b, np.full((ROWS, COLUMNS), np.nan, "float32")])
            np.testing.assert_allclose(result, expected, rtol=1e-4, err_msg=str(candidate))
            places += 1
    assert places > 10
