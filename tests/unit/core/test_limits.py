"""What a machine takes at least."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.values.machine import Cache, Machine, assume_typical_cpu, roofline_us

MACHINE = Machine(
    cores=2,
    lanes=16,
    registers=28,
    in_flight=8,
    core_gflops=100.0,
    gflops={"float32": 180.0, "bfloat16": 360.0},
    caches=(Cache(bytes=32_000, gbytes_per_sec=200.0), Cache(bytes=1_000_000, gbytes_per_sec=50.0)),
    memory_gbytes_per_sec=20.0,
    fork_us=5.0,
)


def floats(count: int, dtype: str = "float32") -> tuple[str, tuple[int, ...]]:
    return dtype, (count,)


def test_much_work_on_little_data_takes_as_long_as_the_peak_says() -> None:
    assert roofline_us(MACHINE, 1.8e9, [floats(1000)]) == pytest.approx(10_000.0)


def test_the_fastest_type_that_takes_part_sets_the_peak() -> None:
    assert roofline_us(MACHINE, 3.6e9, [floats(10, "bfloat16"), floats(10)]) == pytest.approx(10_000.0)
    assert roofline_us(MACHINE, 2e9, [floats(10, "float64")]) == pytest.approx(10_000.0), (
        "as cores in float32"
    )


def test_little_work_takes_as_long_as_its_data_from_where_they_fit() -> None:
    assert roofline_us(MACHINE, 0.0, [floats(10_000)]) == pytest.approx(40_000 / 400e3)
    assert roofline_us(MACHINE, 0.0, [floats(100_000), floats(100_000)]) == pytest.approx(800_000 / 100e3)
    assert roofline_us(MACHINE, 0.0, [floats(10_000_000)]) == pytest.approx(40_000_000 / 20e3)


def test_a_shape_of_no_dimensions_is_one_number_and_a_truth_value_a_byte() -> None:
    assert roofline_us(MACHINE, 0.0, [("int64", ()), ("bool", (8,))]) == pytest.approx(16 / 400e3)


@given(st.floats(0, 1e12), st.integers(1, 10**8), st.integers(1, 64))
def test_more_work_more_data_and_fewer_cores_never_take_less(flops: float, count: int, cores: int) -> None:
    few, many = assume_typical_cpu(cores, 8), assume_typical_cpu(cores + 1, 8)
    one = roofline_us(few, flops, [floats(count)])
    assert 0 < one <= roofline_us(few, flops * 2, [floats(count)])
    assert roofline_us(many, flops, [floats(count)]) <= one
