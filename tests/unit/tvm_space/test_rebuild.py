"""A candidate is rebuilt exactly, from its sketch and its decisions alone."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import tvm
from tvm import te
from tvm.s_tir.schedule import Trace

from mallorn.workers.tvm.programs.parsed_program_cache import (
    is_choice,
    new_schedule,
    parse_tvm_target,
    tune_context,
)
from mallorn.workers.tvm.space.rebuild_schedule import (
    UNROLL,
    full_trace,
    has_long_extremum,
    rebuild,
    validate,
)
from mallorn.workers.tvm.space.sketches import design_space, to_plain_value, trace_text
from tests.unit.tvm_space.programs import TARGET, matmul, negate, softmax


def flat(decisions: list[Any]) -> list[int]:
    return [number for item in decisions for number in (item if isinstance(item, list) else [item])]


def sampled(tir: str, seed: int) -> Iterator[tuple[str, list[int], Any]]:
    """What TVM samples by itself: trace text, decisions, and the module after its postprocessors."""
    context = tune_context(tir, TARGET)
    for sketch in context.generate_design_space():
        schedule = new_schedule(tir, seed)
        Trace(sketch.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        taken, trace = schedule.trace, trace_text(schedule.trace)
        decisions = [to_plain_value(taken.decisions[inst]) for inst in taken.insts if is_choice(inst)]
        schedule.enter_postproc()
        if all(step.apply(schedule) for step in context.space_generator.postprocs):
            yield trace, flat(decisions), schedule.mod


@pytest.mark.parametrize("tir", [matmul(), softmax(), negate()], ids=["matmul", "softmax", "negate"])
@pytest.mark.parametrize("seed", [1, 2, 77])
def test_the_program_is_the_one_that_tvm_made(tir: str, seed: int) -> None:
    candidates = list(sampled(tir, seed))
    assert candidates
    for trace, decisions, module in candidates:
        schedule = rebuild(tir, TARGET, trace, decisions)
        assert schedule is not None
        tvm.ir.assert_structural_equal(schedule.mod, module)


def test_what_was_found_valid_is_not_rebuilt_to_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, decisions, module = next(sampled(matmul(), 11))
    assert validate(matmul(), TARGET, [(trace, decisions)]) == [True]
    monkeypatch.setattr("mallorn.workers.tvm.space.sketches.new_schedule", None)
    schedule = rebuild(matmul(), TARGET, trace, decisions)
    assert schedule is not None
    tvm.ir.assert_structural_equal(schedule.mod, module)


def test_the_full_trace_alone_gives_the_program_again() -> None:
    trace, decisions, module = next(sampled(softmax(), 5))
    text = full_trace(softmax(), TARGET, trace, decisions)
    assert text is not None
    schedule = new_schedule(softmax())
    Trace.apply_json_to_schedule(json.loads(text), schedule)
    tvm.ir.assert_structural_equal(schedule.mod, module)


def test_decisions_of_the_wrong_length_are_an_error() -> None:
    trace = design_space(matmul(), TARGET)[0].trace
    with pytest.raises(ValueError, match="more decisions"):
        rebuild(matmul(), TARGET, trace, [1] * 12)


@pytest.mark.slow
def test_what_a_postprocessor_refuses_is_invalid() -> None:
    gpu = '{"arch":"sm_80","kind":"cuda","max_shared_memory_per_block":1024,"max_threads_per_block":64}'
    sketch = next(s for s in design_space(matmul(), gpu) if s.choices)
    too_many_threads: list[int] = []
    for choice in sketch.choices:
        match choice.kind, choice.width:
            case "tile", 5:
                too_many_threads += [1, 1, choice.extent, 1, 1]
            case "tile", width:
                too_many_threads += [choice.extent] + [1] * (width - 1)
            case _:
                too_many_threads += [choice.values[0]]
    assert validate(matmul(), gpu, [(sketch.trace, too_many_threads)]) == [False]
    assert full_trace(matmul(), gpu, sketch.trace, too_many_threads) is None


def test_a_tag_keeps_what_it_stands_for() -> None:
    target = parse_tvm_target('{"kind":"cuda","tag":"nvidia/nvidia-a100"}')
    assert target.attrs["arch"] == "sm_80"


@pytest.mark.parametrize(
    ("combine", "terms", "steps", "is_long"),
    [
        (te.max, 32, 64, True),
        (te.min, 32, 64, True),
        (te.max, 32, 16, False),  # the loop stays a loop
        (te.max, 9, 64, False),  # a window of a pool
        (te.sum, 32, 64, False),
    ],
)
def test_maxima_are_not_unrolled_into_what_llvm_compiles_for_hours(
    combine: Any, terms: int, steps: int, is_long: bool
) -> None:
    x = te.placeholder((8, 8, terms, 16), name="x")
    axes = [te.reduce_axis((0, size)) for size in (8, terms)]
    result = te.compute((8, 16), lambda i, j: combine(x[i, *axes, j], axis=axes), name="result")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func([x, result])}))
    rows, lanes, *around = schedule.get_loops(schedule.get_sblock("result"))
    schedule.reorder(rows, *around, lanes)
    schedule.vectorize(lanes)
    schedule.annotate(rows, UNROLL, steps)
    assert has_long_extremum(schedule) == is_long
