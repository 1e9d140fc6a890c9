"""A machine's constants and the counts of generated code say what a candidate should take."""

import numpy as np
import pytest

from mallorn.core.values.machine import Cache, Machine
from mallorn.costmodels.analytic_models import Tuna
from mallorn.costmodels.base import Matrix
from mallorn.costmodels.views import EXECUTED, Count

MACHINE = Machine(
    cores=2,
    lanes=16,
    registers=28,
    in_flight=10,
    core_gflops=256.0,
    caches=(
        Cache(bytes=32 << 10, gbytes_per_sec=512.0),
        Cache(bytes=1 << 20, gbytes_per_sec=128.0),
    ),
    memory_gbytes_per_sec=40.0,
    fork_us=1.0,
    measured=True,
)


def row(
    lines: float = 0.0, left: float = 0.0, distinct: float = 0.0, apart: float = 0.0, **counts: float
) -> Matrix:
    values = np.zeros((1, EXECUTED.width))
    usual = {"products": 1e6, "arithmetic": 1e6 / 16, "accumulators": 16.0, "pieces": 8.0}
    for name, value in {**usual, **counts}.items():
        values[0, Count[name.upper()]] = value
    values[0, len(Count) : len(Count) + 4] = lines, left, distinct, apart
    return np.log2(1 + values).astype(np.float32)


def us(rows: Matrix, machine: Machine = MACHINE) -> float:
    return float(Tuna(machine).expected_us(rows)[0])


def test_products_alone_take_what_the_machine_takes_for_them() -> None:
    operations = 2e6
    assert us(row()) == pytest.approx(operations / (MACHINE.core_gflops * 1e3 * MACHINE.cores), rel=1e-3)


def test_too_few_sums_at_once_wait_for_each_other() -> None:
    assert us(row(accumulators=5.0)) == pytest.approx(2 * us(row()), rel=1e-2)
    assert us(row(accumulators=10.0)) == pytest.approx(us(row()), rel=1e-3)


def test_what_is_loaded_and_all_other_instructions_cost_too() -> None:
    assert us(row(loaded=1e6)) > us(row())
    assert us(row(instructions=1e6)) > us(row())
    assert us(row(divides=1e5)) > us(row())


def test_lines_that_a_cache_keeps_come_from_it_once() -> None:
    near = us(row(lines=1e5, left=1e3, distinct=1e4, apart=1e3))
    far = us(row(lines=1e5, left=1e3, distinct=1e4, apart=1e5))
    farther = us(row(lines=1e5, left=1e3, distinct=1e5, apart=1e7))
    small = us(row(lines=1e5, left=1e3, distinct=100, apart=1e7))
    assert small < near < far < farther


def test_pieces_that_do_not_divide_among_the_cores_leave_one_idle() -> None:
    assert us(row(pieces=3.0)) == pytest.approx(us(row(pieces=4.0)) * 4 / 3)
    assert us(row(pieces=1.0)) == pytest.approx(2 * us(row(pieces=4.0)))


def test_another_machine_has_other_times() -> None:
    slow = MACHINE.model_copy(update={"core_gflops": 64.0})
    assert us(row(), slow) == pytest.approx(4 * us(row()), rel=1e-3)
    made = Tuna.made_for(slow)
    np.testing.assert_array_equal(Tuna.load(made.save()).predict(row()).mean, made.predict(row()).mean)


def test_what_was_measured_changes_no_order_and_tells_how_far_off_it_is() -> None:
    rows = np.concatenate([row(accumulators=float(sums)) for sums in range(1, 21)])
    model = Tuna(MACHINE)
    before = model.predict(rows)
    measured = (before.mean - before.mean.max()).astype(np.float32)
    model.fit(rows, measured - np.float32(0.7), np.zeros(20, dtype=np.int64), seed=0)
    after = model.predict(rows)
    np.testing.assert_array_equal(after.mean, before.mean)
    assert after.std[0] < 0.01 < before.std[0]


def test_what_cannot_be_lowered_is_expected_to_be_slowest() -> None:
    rows = np.concatenate([row(), np.full((1, EXECUTED.width), np.nan, dtype=np.float32)])
    known, unknown = Tuna(MACHINE).predict(rows).mean
    assert unknown < known
