"""Which candidates come out too large to be worth compiling."""

from typing import Any

import pytest
import tvm
from tvm import te
from tvm.s_tir import Schedule

from mallorn.workers.tvm.compile.build_libraries import (
    CHEAP,
    FEWEST,
    KEPT,
    TOO_LARGE,
    BodyTooLarge,
    CandidateSizes,
    compile_module,
)
from tests.unit.tvm_space.programs import TARGET

USUAL = 100
LARGE = int(TOO_LARGE * USUAL) + 1


def sizes_of(*sizes: int) -> CandidateSizes:
    known = CandidateSizes()
    for size in sizes:
        known.check_size(size)
    return known


def unrolled(places: int) -> Any:
    """A program that writes in so many places."""
    a = te.placeholder((places,), name="a")
    schedule = Schedule(te.create_prim_func([a, te.compute((places,), lambda i: a[i] + 1.0, name="b")]))
    schedule.unroll(schedule.get_loops(schedule.get_sblock("b"))[0])
    return schedule.mod


def test_before_a_few_are_known_nothing_is_too_large() -> None:
    sizes_of(*[USUAL] * (FEWEST - 1)).check_size(LARGE)


def test_what_is_many_times_as_large_as_usual_is_refused_and_told_why() -> None:
    with pytest.raises(BodyTooLarge, match=f"has {LARGE} stores, the median {USUAL}"):
        sizes_of(*[USUAL] * FEWEST).check_size(LARGE)


def test_what_is_somewhat_larger_is_not() -> None:
    sizes_of(*[USUAL] * FEWEST).check_size(LARGE - 1)


def test_small_bodies_are_never_refused() -> None:
    sizes_of(*[1] * FEWEST).check_size(CHEAP)


def test_what_a_search_turns_to_becomes_usual() -> None:
    known = sizes_of(*[USUAL] * FEWEST)
    for _ in range(KEPT):
        try:
            known.check_size(LARGE)
        except BodyTooLarge:
            continue
        break
    else:
        pytest.fail("refused for ever")


def test_a_large_body_is_not_compiled() -> None:
    known = sizes_of(*[4] * FEWEST)
    assert compile_module(unrolled(CHEAP), TARGET, known)[0]
    with pytest.raises(BodyTooLarge, match=f"has {CHEAP + 1} stores, the median 4"):
        compile_module(unrolled(CHEAP + 1), TARGET, known)


def test_without_sizes_to_compare_with_every_body_is_compiled() -> None:
    assert compile_module(unrolled(CHEAP + 1), TARGET)[0]


def test_what_tvm_refuses_stays_an_error_of_tvm() -> None:
    with pytest.raises((RuntimeError, tvm.error.InternalError)):
        compile_module(
            tvm.IRModule({"main": unrolled(4)["main"].with_attr("calling_conv", 99)}),
            TARGET,
            CandidateSizes(),
        )
